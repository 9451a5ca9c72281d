//! What to try while the space is served: where things are, and how to connect without our code.
//!
//! Owns the wording. Everything printed is a path or a public name, never a secret.

use anyhow::Result;
use lanekeeper_wire::{StreamKind, names, subject};

use super::{narrator::Narrator, spaces::Spaces, stage::Stage};
use crate::mesh::{Member, member_credentials};

/// Prints it.
///
/// # Errors
/// Nobody reads standard output any more, or a credential is missing.
pub(super) fn print(stage: &Stage, say: &mut Narrator) -> Result<()> {
    let (site, space) = (&stage.site, &stage.site.space);
    let kept = if stage.is_temporary { "removed at the end; --state DIR keeps it" } else { "kept" };
    let (url, lane) = (&site.url, site.credentials.display());
    say.line(format_args!("\nThe space `{space}` is served at {url} until Ctrl-C."))?;
    say.line(format_args!("  state               {} ({kept})", stage.mesh().dir().display()))?;
    say.line(format_args!("  broker's log        {}", stage.mesh().broker.log_path().display()))?;
    say.line(format_args!("  lane's credentials  {lane}"))?;
    for member in [&stage.ada, &stage.bob, &stage.cleo] {
        let note = if member == &stage.cleo { " (may read nothing now)" } else { "" };
        say.line(format_args!("  {:<5}               {}{note}", member.name, member.credentials.display()))?;
    }
    say.line("\nPost as ada and receive as bob with the public Python client (pip install 'nats-py[nkeys]'):")?;
    say.line(python(stage)?)?;
    say.line("A second daemon is refused while this one holds the lease:")?;
    say.line(format_args!("  lanekeeper serve --space {space} --server {url} --credentials {lane}"))
}

/// Prints what to try with further spaces.
///
/// # Errors
/// Nobody reads standard output any more.
pub(super) fn print_spaces(stage: &Stage, spaces: &Spaces, say: &mut Narrator) -> Result<()> {
    let (manifest, address) = (spaces.manifest.display(), &spaces.address);
    say.line(format_args!("\nThe further spaces stand in {manifest}. Look at their lanes, add one, take one out:"))?;
    say.line(format_args!("  lanekeeper lanes --watch --admin {address}"))?;
    say.line(format_args!(
        "  lanekeeper space add another --manifest {manifest} --server {} --home {} --credentials-root {}",
        stage.site.url,
        stage.mesh().home.dir().display(),
        spaces.credentials.display()
    ))?;
    say.line(format_args!("  lanekeeper space remove another --manifest {manifest}"))
}

/// A script that a newcomer can paste.
fn python(stage: &Stage) -> Result<String> {
    let (site, space) = (&stage.site, &stage.site.space);
    let (ada, bob) = (&stage.ada, &stage.bob);
    let (chat, id) = (subject::chat(space, ada.lifecycle.principal(), &stage.channel), ada.lifecycle.principal());
    let (durable, stream) = (names::dlv_durable(&bob.lifecycle), StreamKind::Dlv.name(space));
    let connect = |member: &Member| -> Result<String> {
        let (path, inbox) = (member.credentials.display().to_string(), member_credentials(member)?.inbox_prefix());
        Ok(format!("await nats.connect({:?}, user_credentials={path:?}, inbox_prefix=b{inbox:?})", site.url))
    };
    Ok([
        "python3 - <<'END'".to_owned(),
        "import asyncio, json, nats".to_owned(),
        "async def main():".to_owned(),
        format!("    ada = {}", connect(ada)?),
        format!("    bob = {}", connect(bob)?),
        format!("    author, text = {{'id': '{id}', 'name': 'ada'}}, {{'kind': 'text', 'text': 'hello'}}"),
        "    post = {'id': 'hello-1', 'from': author, 'parts': [text]}".to_owned(),
        format!("    await ada.publish({chat:?}, json.dumps(post).encode())"),
        format!("    copies = await bob.jetstream().pull_subscribe_bind({durable:?}, {stream:?})"),
        "    for copy in await copies.fetch(1):".to_owned(),
        "        print(copy.headers, copy.data.decode())".to_owned(),
        "        await copy.ack()".to_owned(),
        "    await ada.close()".to_owned(),
        "    await bob.close()".to_owned(),
        "asyncio.run(main())".to_owned(),
        "END".to_owned(),
    ]
    .join("\n"))
}
