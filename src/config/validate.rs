//! From `lanekeeper.toml` as it was read to a host configuration that holds.
//!
//! Owns what values must be besides their kind, and how they relate. It must not know the manifest's content.

use std::{net::SocketAddr, ops::Range};

use toml::Spanned;

use super::{
    AdminConfig, DEFAULT_SERVER, HostConfig,
    fault::shown,
    file::{AdminSection, ConfigFile, HostLimits},
    fold, places, servers,
    source::Source,
};
use crate::admin::Token;

type Found = Vec<(Range<usize>, String)>;

/// The configuration in `file`. Everything that does not hold goes to `faults`; then the value is of no use.
pub(super) fn host_config(source: &Source, file: &ConfigFile, faults: &mut Found) -> HostConfig {
    let host = host_name(file, faults);
    let hosts = host_names(file, &host, faults);
    let servers = match &file.servers {
        Some(named) => servers::parse(named.get_ref(), faults),
        None => DEFAULT_SERVER.parse().into_iter().collect(),
    };
    let manifest = match &file.manifest {
        Some(named) => source.beside(named.get_ref()),
        None => places::manifest_beside(&source.beside("")),
    };
    let token_file = file.admin.token_file.as_ref().map(|named| (source.beside(named.get_ref()), named.span()));
    if let Some((path, span)) = &token_file
        && let Err(fault) = Token::read(path)
    {
        faults.push((span.clone(), fault.to_string()));
    }
    let token_file = token_file.map(|(path, _)| path);
    let admin = AdminConfig { listen: listen(&file.admin, faults), token_file };
    backoff(source, &file.limits, faults);
    let lane = file.lane.over(&lanekeeper_lane::Limits::default());
    let limits = file.limits.clone();
    HostConfig { file: Some(source.path().to_owned()), host, hosts, servers, admin, limits, lane, manifest }
}

fn host_name(file: &ConfigFile, faults: &mut Found) -> String {
    let Some(named) = &file.host else {
        let name = super::system_host();
        if !is_host_name(&name) {
            let message = format!("the system's host name `{}` is of no use: {NAME_RULE}; set `host`", shown(&name));
            faults.push((0..0, message));
        }
        return name;
    };
    refuse_bad_name("host", named, faults);
    named.get_ref().clone()
}

fn host_names(file: &ConfigFile, host: &str, faults: &mut Found) -> Vec<String> {
    let Some(hosts) = &file.hosts else { return Vec::new() };
    let mut names: Vec<&str> = Vec::new();
    for named in hosts.get_ref() {
        let name = named.get_ref().as_str();
        refuse_bad_name("hosts", named, faults);
        if let Some(other) = names.iter().find(|other| fold(other) == fold(name)) {
            let message = format!(
                "host `{}` is named twice, as `{}`: each host counts once; remove one",
                shown(name),
                shown(other)
            );
            faults.push((named.span(), message));
        }
        names.push(name);
    }
    // A name that is none was told already.
    if is_host_name(host) && !names.contains(&host) {
        let (at, from) = match &file.host {
            Some(named) => (named.span(), "set with `host`"),
            None => (hosts.span(), "the system's name"),
        };
        let message = format!(
            "this host is `{}` ({from}) and `hosts` does not list it: no space would prefer it; add it to `hosts` or correct `host`",
            shown(host)
        );
        faults.push((at, message));
    }
    names.into_iter().map(str::to_owned).collect()
}

const NAME_RULE: &str = "a host name has 1 to 253 of A-Z, a-z, 0-9, ., _ and -, and starts with a letter or digit";

fn refuse_bad_name(key: &str, named: &Spanned<String>, faults: &mut Found) {
    let name = named.get_ref();
    if !is_host_name(name) {
        faults.push((named.span(), format!("`{key}` holds `{}`: {NAME_RULE}; correct it", shown(name))));
    }
}

fn is_host_name(name: &str) -> bool {
    name.len() <= 253
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn listen(admin: &AdminSection, faults: &mut Found) -> SocketAddr {
    let default = super::DEFAULT_LISTEN;
    let Some(named) = &admin.listen else { return default };
    let text = named.get_ref();
    let Ok(address) = text.parse::<SocketAddr>() else {
        let message = format!(
            "`admin.listen` is `{}`, which is no address and port; write it as 127.0.0.1:8470 or [::1]:8470",
            shown(text)
        );
        faults.push((named.span(), message));
        return default;
    };
    if !address.ip().is_loopback() && admin.token_file.is_none() {
        let message = format!(
            "`admin.listen` is {address}, which others can reach, and there is no token: anybody could close lanes; set `admin.token_file` or listen on 127.0.0.1"
        );
        faults.push((named.span(), message));
    }
    address
}

fn backoff(source: &Source, limits: &HostLimits, faults: &mut Found) {
    if limits.backoff_first_ms > limits.backoff_cap_ms {
        let at = source.text().find("backoff_cap_ms").or_else(|| source.text().find("backoff_first_ms")).unwrap_or(0);
        let message = format!(
            "`limits.backoff_first_ms` is {} and `limits.backoff_cap_ms` is {}: the first pause would be longer than the longest; raise the cap",
            limits.backoff_first_ms, limits.backoff_cap_ms
        );
        faults.push((at..at, message));
    }
}
