//! The commands that talk to a running host: `lanes`, `reload`, `drain`, `undrain`, `reopen`, `unpark`.
//!
//! Owns how its admin server is found. They are clients of it and nothing else: they read no manifest and touch no broker.

pub mod client;
pub mod detail;
pub mod figures;
pub mod lanes;
pub mod orders;
pub mod table;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use self::client::AdminClient;
use crate::{admin::Token, config::HostConfig};

/// Which host, and as whom.
#[derive(Debug, Clone, Default, Args)]
pub struct AdminArgs {
    /// The host's admin server, as host:port; without it, the one of the configuration.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// The file with the bearer token, where the server asks for one; without it, the one of the configuration.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The host's configuration, where it is not in its standard place.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl AdminArgs {
    /// The client.
    ///
    /// # Errors
    /// The configuration or the token file cannot be used.
    pub fn client(&self) -> Result<AdminClient> {
        // A host that is named needs no configuration here, unless one is asked for.
        let configured = match (&self.admin, &self.config) {
            (Some(_), None) => None,
            (Some(_) | None, _) => Some(HostConfig::find(self.config.as_deref())?.admin),
        };
        let address = match (&self.admin, &configured) {
            (Some(named), _) => named.clone(),
            (None, Some(configured)) => reachable(configured.listen).to_string(),
            (None, None) => crate::config::DEFAULT_LISTEN.to_string(),
        };
        let token_file = self.token_file.clone().or_else(|| configured.and_then(|configured| configured.token_file));
        let token = token_file.map(|path| Token::read(&path)).transpose().context("the admin token cannot be used")?;
        Ok(AdminClient::new(address, token))
    }
}

/// What listens everywhere is asked here.
fn reachable(mut address: std::net::SocketAddr) -> std::net::SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
