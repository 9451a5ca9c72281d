//! Starting a child that does not outlive its owner, even when the owner is killed with SIGKILL.
//!
//! The kernel sends a child its parent-death signal when the *thread* that started it ends, not the process. So every
//! child is started by one thread that lives as long as the process; the threads of a runtime come and go.
//!
//! The child is put into a process group of its own. A Ctrl-C in a terminal goes to the foreground group only, so the
//! broker does not die of it before its owner has closed what hangs on it.

use std::io;
use std::sync::{Mutex, PoisonError, mpsc};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Order {
    command: Command,
    /// The runtime that will wait for the child.
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: Mutex<Option<mpsc::Sender<Order>>> = Mutex::new(None);

/// Starts `command`. The child is killed when the returned handle is dropped and when this process ends in any way.
pub(crate) async fn spawn_owned(mut command: Command) -> io::Result<Child> {
    command.kill_on_drop(true).process_group(0);
    die_with_parent(&mut command, getpid());
    let (reply, answer) = oneshot::channel();
    send(Order { command, runtime: Handle::current(), reply })?;
    answer.await.map_err(|_| io::Error::other("the thread that starts children ended"))?
}

fn send(order: Order) -> io::Result<()> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = match spawner.as_ref() {
        Some(sender) => sender,
        None => {
            let (sender, orders) = mpsc::channel();
            std::thread::Builder::new().name("broker-spawner".into()).spawn(move || serve(orders))?;
            spawner.insert(sender)
        }
    };
    sender.send(order).map_err(|_| io::Error::other("the thread that starts children is gone"))
}

/// The sender is a static, so this ends only with the process.
fn serve(orders: mpsc::Receiver<Order>) {
    for Order { mut command, runtime, reply } in orders {
        let _entered = runtime.enter();
        let child = command.spawn();
        // If nobody waits for it any more, the child is dropped here and so killed.
        drop(reply.send(child));
    }
}

#[expect(unsafe_code, reason = "a parent-death signal can only be set between fork and exec")]
fn die_with_parent(command: &mut Command, owner: Pid) {
    let hook = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The owner may have died before the line above; then no signal will ever come.
        if getppid() == Some(owner) { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: the closure runs in the forked child before exec. It makes two system calls that are async-signal-safe,
    // allocates nothing (an error made from an errno holds only the number) and takes no locks.
    unsafe { command.pre_exec(hook) };
}
