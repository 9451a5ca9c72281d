//! Which host should serve which space.
//!
//! Owns rendezvous hashing over the configured host names: every host comes to the same answer alone, and a host that is
//! added or removed moves only the spaces it gains or loses. It must not decide who serves: the lease does.

use std::time::Duration;

use lanekeeper_wire::Space;
use sha2::{Digest as _, Sha256};

/// After so many hosts before it, a host waits no longer.
const MOST_WAITED_FOR: u32 = 5;

/// Where a space stands with one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host that should serve it; `None` where no hosts are configured.
    pub preferred: Option<String>,
    /// How long this host leaves a free lease to those before it.
    pub head_start: Duration,
}

/// Where `space` stands with `host`, one of `hosts`. A host that is not listed comes last. Each host leaves a free lease
/// `head_start` longer than the one before it.
#[must_use]
pub fn place(space: &Space, host: &str, hosts: &[String], head_start: Duration) -> Place {
    let mut ranked: Vec<(u64, &str)> = hosts.iter().map(|name| (weight(name, space), name.as_str())).collect();
    // The name decides between equal weights, so that every host ranks alike.
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    ranked.dedup_by(|a, b| a.1 == b.1);
    let rank = ranked.iter().position(|(_, name)| *name == host).unwrap_or(ranked.len());
    let steps = u32::try_from(rank).unwrap_or(u32::MAX);
    Place {
        preferred: ranked.first().map(|(_, name)| (*name).to_owned()),
        head_start: head_start.saturating_mul(steps.min(MOST_WAITED_FOR)),
    }
}

/// A host's weight for a space. The length keeps `ab`+`c` apart from `a`+`bc`.
fn weight(host: &str, space: &Space) -> u64 {
    let mut hash = Sha256::new();
    hash.update((host.len() as u64).to_be_bytes());
    hash.update(host.as_bytes());
    hash.update(space.as_str().as_bytes());
    hash.finalize().iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const STEP: Duration = Duration::from_secs(1);

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn preferred(space: &Space, hosts: &[String]) -> String {
        place(space, "x", hosts, STEP).preferred.unwrap()
    }

    #[test]
    fn without_hosts_nobody_waits() {
        let place = place(&"demo".parse().unwrap(), "one", &[], STEP);
        assert_eq!(place, Place { preferred: None, head_start: Duration::ZERO });
    }

    #[test]
    fn spaces_spread_over_the_hosts() {
        let hosts = hosts(&["one", "two", "three"]);
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..3000 {
            *counts.entry(preferred(&format!("space-{number}").parse().unwrap(), &hosts)).or_default() += 1;
        }
        assert!(counts.len() == 3 && counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_host_that_leaves_moves_only_its_own_spaces(
            space in "[a-z0-9-]{1,20}",
            names in proptest::collection::btree_set("[a-z]{1,8}", 2..6),
            gone in 0usize..6,
        ) {
            let all: Vec<String> = names.into_iter().collect();
            let gone = all[gone % all.len()].clone();
            let space: Space = format!("s{space}").parse().unwrap();
            let rest: Vec<String> = all.iter().filter(|name| **name != gone).cloned().collect();
            let before = preferred(&space, &all);
            if before != gone {
                prop_assert_eq!(before, preferred(&space, &rest));
            }
        }

        #[test]
        fn every_host_comes_to_the_same_answer_and_exactly_one_does_not_wait(
            names in proptest::collection::btree_set("[a-z]{1,8}", 1..6),
            space in "[a-z0-9]{1,20}",
        ) {
            let all: Vec<String> = names.into_iter().collect();
            let mut turned = all.clone();
            turned.reverse();
            let space: Space = space.parse().unwrap();
            let places: Vec<Place> = all.iter().map(|host| place(&space, host, &all, STEP)).collect();
            prop_assert_eq!(places.iter().filter(|place| place.head_start.is_zero()).count(), 1);
            for (host, seen) in all.iter().zip(&places) {
                prop_assert_eq!(seen, &place(&space, host, &turned, STEP));
                prop_assert_eq!(seen.head_start.is_zero(), seen.preferred.as_deref() == Some(host.as_str()));
            }
            prop_assert!(!place(&space, "not listed", &all, STEP).head_start.is_zero());
        }
    }
}
