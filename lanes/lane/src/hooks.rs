//! Faults on request, for tests of what surrounds a lane. Compiled into debug builds only, and asleep there unless the
//! variable `LANEKEEPER_HOOKS` names a directory.
//!
//! A file `<dir>/<space>.<part>.panic` makes that part panic and is removed; while a file
//! `<dir>/<space>.credentials.block` exists, a read of the space's credentials does not return.

use lanekeeper_wire::Space;

/// Panics when asked to; otherwise never returns.
pub(crate) async fn panic_when_asked(space: &Space, part: &'static str) -> std::convert::Infallible {
    #[cfg(debug_assertions)]
    if let Some(dir) = dir() {
        let file = dir.join(format!("{space}.{part}.panic"));
        loop {
            if std::fs::remove_file(&file).is_ok() {
                panic!("asked to panic");
            }
            tokio::time::sleep(POLL).await;
        }
    }
    let _ = (space, part);
    std::future::pending().await
}

/// Blocks the calling thread while asked to.
pub(crate) fn block_when_asked(space: &Space) {
    #[cfg(debug_assertions)]
    if let Some(dir) = dir() {
        while dir.join(format!("{space}.credentials.block")).exists() {
            std::thread::sleep(POLL);
        }
    }
    let _ = space;
}

#[cfg(debug_assertions)]
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(debug_assertions)]
fn dir() -> Option<std::path::PathBuf> {
    std::env::var_os("LANEKEEPER_HOOKS").map(Into::into)
}
