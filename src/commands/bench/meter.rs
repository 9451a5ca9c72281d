//! Processor time and memory of the three processes, over one phase.
//!
//! Owns the sampling. The kernel counts processor time in steps of 10 ms, so a phase should take longer than that.

use std::time::Duration;

use anyhow::Result;
use lanekeeper_broker::{process_cpu_time, process_rss_bytes};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

/// How often memory is looked at for its peak.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// Processor time of several processes since a moment.
#[derive(Debug)]
pub(super) struct CpuMeter {
    started: Vec<(u32, Duration)>,
}

impl CpuMeter {
    /// Starts now for these processes.
    ///
    /// # Errors
    /// One of them is gone.
    pub(super) fn start(pids: &[u32]) -> Result<Self> {
        let started = pids.iter().map(|pid| Ok((*pid, process_cpu_time(*pid)?)));
        Ok(Self { started: started.collect::<Result<_>>()? })
    }

    /// What each has used since, in the order given.
    ///
    /// # Errors
    /// One of them is gone.
    pub(super) fn used(&self) -> Result<Vec<Duration>> {
        self.started.iter().map(|(pid, before)| Ok(process_cpu_time(*pid)?.saturating_sub(*before))).collect()
    }
}

/// The peak of one process's memory while it is watched.
#[derive(Debug)]
pub(super) struct PeakMemory {
    pid: u32,
    sampler: JoinHandle<()>,
    peak: tokio::sync::watch::Receiver<u64>,
}

impl PeakMemory {
    pub(super) fn watch(pid: u32) -> Self {
        let (sender, peak) = tokio::sync::watch::channel(0);
        let sampler = tokio::spawn(async move {
            let mut tick = interval(SAMPLE_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let Ok(bytes) = process_rss_bytes(pid) else { return };
                sender.send_modify(|peak| *peak = bytes.max(*peak));
            }
        });
        Self { pid, sampler, peak }
    }

    /// The peak so far, bytes.
    pub(super) fn bytes(self) -> u64 {
        let last = process_rss_bytes(self.pid).unwrap_or(0);
        last.max(*self.peak.borrow())
    }
}

impl Drop for PeakMemory {
    fn drop(&mut self) {
        self.sampler.abort();
    }
}
