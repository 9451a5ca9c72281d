//! What `/proc` says of a process: its start, its memory, its processor time.
//!
//! Owns no process and sends no signals.

use std::fs;
use std::io;
use std::time::Duration;

/// A process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no such process, or it has ended and waits to be reaped.
    #[error("process {pid} is gone")]
    Gone {
        /// The process asked for.
        pid: u32,
    },
    /// The process is there, but `/proc` could not be read.
    #[error("cannot read /proc/{pid}: {source}")]
    Unreadable {
        /// The process asked for.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The file had another form than the kernel's manual says.
    #[error("cannot make sense of /proc/{pid}/{file}")]
    Malformed {
        /// The process asked for.
        pid: u32,
        /// The file under `/proc/<pid>`.
        file: &'static str,
    },
}

/// Resident memory of a process, in bytes.
///
/// # Errors
///
/// [`ProcessError`] when there is no such process or it cannot be read.
pub fn process_rss_bytes(pid: u32) -> Result<u64, ProcessError> {
    let text = read(pid, "statm")?;
    let pages: u64 = text
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .ok_or(ProcessError::Malformed { pid, file: "statm" })?;
    match pages {
        // A process that has ended but is not reaped has no memory any more.
        0 => Err(ProcessError::Gone { pid }),
        pages => Ok(pages.saturating_mul(rustix::param::page_size() as u64)),
    }
}

/// Processor time a process has used so far, user and system, over all its threads.
///
/// # Errors
///
/// [`ProcessError`] when there is no such process or it cannot be read.
pub fn process_cpu_time(pid: u32) -> Result<Duration, ProcessError> {
    let stat = Stat::read(pid)?;
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let ticks = stat.user_ticks.saturating_add(stat.system_ticks);
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second);
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// When a process started, in clock ticks since the machine booted. With the pid it names one process for good: pids
/// are used again, the pair is not.
///
/// # Errors
///
/// [`ProcessError`] when there is no such process or it cannot be read.
pub fn process_start_ticks(pid: u32) -> Result<u64, ProcessError> {
    Ok(Stat::read(pid)?.start_ticks)
}

/// The part of `/proc/<pid>/stat` that is of use here.
pub(crate) struct Stat {
    /// `R`, `S`, `T`, `Z` and so on.
    pub(crate) state: char,
    user_ticks: u64,
    system_ticks: u64,
    pub(crate) start_ticks: u64,
}

impl Stat {
    pub(crate) fn read(pid: u32) -> Result<Self, ProcessError> {
        let text = read(pid, "stat")?;
        Self::parse(&text).ok_or(ProcessError::Malformed { pid, file: "stat" })
    }

    /// The command name is in brackets and may itself hold brackets and spaces, so counting starts after the last one.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // Field 3 of proc_pid_stat(5) is the first after the name.
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            start_ticks: number(22)?,
        })
    }
}

fn read(pid: u32, file: &'static str) -> Result<String, ProcessError> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|source| match source.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NOENT.raw_os_error() => ProcessError::Gone { pid },
        Some(code) if code == rustix::io::Errno::SRCH.raw_os_error() => ProcessError::Gone { pid },
        Some(_) | None => ProcessError::Unreadable { pid, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_very_process() {
        let pid = std::process::id();
        assert!(process_rss_bytes(pid).unwrap() > 100_000);
        assert!(process_start_ticks(pid).unwrap() > 0);
        assert_eq!(process_start_ticks(pid).unwrap(), process_start_ticks(pid).unwrap());
        let before = process_cpu_time(pid).unwrap();
        // Reading is work too, so this ends.
        while process_cpu_time(pid).unwrap() <= before {}
    }

    #[test]
    fn a_process_that_is_not_there_is_gone() {
        // Above the kernel's highest pid.
        let pid = u32::MAX / 2;
        assert!(matches!(process_rss_bytes(pid), Err(ProcessError::Gone { .. })));
        assert!(matches!(process_cpu_time(pid), Err(ProcessError::Gone { .. })));
        assert!(matches!(process_start_ticks(pid), Err(ProcessError::Gone { .. })));
    }

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let tail = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = Stat::parse(&format!("77 (a) b (c)) T {tail}")).unwrap();
        assert_eq!((stat.state, stat.user_ticks, stat.system_ticks, stat.start_ticks), ('T', 14, 15, 22));
        assert!(Stat::parse("77 (a) T 1 2").is_none());
        assert!(Stat::parse("").is_none());
    }
}
