//! The ledger: the paths between guests, the dead, and whether the reports of survivors are true.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::blackbox::LentBox;
use super::wire::{LaneCounts, Life};

/// A path as one of its sides has reported it.
#[derive(Clone, Copy, Debug)]
pub struct OpenPath {
    /// The other side.
    pub peer: Life,
    /// Since when, by the machine's clock.
    pub joined_ns: u64,
}

/// A side that has reported the end of a path.
#[derive(Debug)]
pub struct Severed {
    /// The reporting side.
    pub survivor: Life,
    /// Which path.
    pub key: u64,
    /// When it knew.
    pub at_ns: u64,
    /// Whether the reason is that the peer is gone without a word.
    pub gone: bool,
    /// The reason in words.
    pub reason: String,
    /// Its counts.
    pub lanes: Vec<LaneCounts>,
    /// Of the source of a path of IUCV: messages that it knows will not be answered.
    pub unanswered: Option<u64>,
}

/// When a process was killed, by the machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// When the signal was sent.
    pub killed_ns: u64,
    /// When the kernel was found to have ended it. It may take its time, most of all to take away the
    /// memory, and closes the doorbells at the end of that.
    pub ended_ns: u64,
}

/// A guest that was killed.
#[derive(Debug)]
struct Grave {
    death: Death,
    blackbox: Option<LentBox>,
}

/// A host may have died between notifying the one side of a path and notifying the other: so long after its
/// death the one side may still learn that the other was never there.
const HALF_MADE_NS_MAX: u64 = 10_000_000_000;

/// All that is known of paths and deaths.
#[derive(Debug, Default)]
pub struct Ledger {
    open: BTreeMap<(Life, u64), OpenPath>,
    /// Every path that a side has ever reported.
    told: HashSet<(Life, u64)>,
    graves: HashMap<Life, Grave>,
    host_killed_ns: u64,
    /// What has been found.
    pub found: Found,
}

/// What the ledger has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Reported ends of paths that a kill explains.
    pub severed: u64,
    /// Ends of paths that the host had made on one side only when it was killed.
    pub half_made: u64,
    /// The longest time from a kill to a survivor's knowledge of it.
    pub worst_after_kill: Duration,
    /// The longest time from the end of a process to a survivor's knowledge of it.
    pub worst_after_end: Duration,
    /// The longest time from a kill to the end of the process.
    pub dying: Duration,
    /// Ends that came later than they may.
    pub late: Vec<String>,
    /// Messages received and verified, of paths that have ended.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that were being sent when the sender died and were not received.
    pub unfinished: u64,
    /// Messages of IUCV that the dead owed a reply, each of which its source has learned of.
    pub unanswered: u64,
    /// Messages of IUCV that their sources took back, on paths that a kill has ended.
    pub purged: u64,
    /// Messages that were handed over to one that died before it took them.
    pub unread: u64,
}

impl Ledger {
    /// A guest has died. All its reports have been received.
    pub fn bury(&mut self, life: Life, death: Death, blackbox: Option<LentBox>) {
        let own: Vec<_> =
            self.open.range((life, 0)..=(life, u64::MAX)).map(|(at, _)| *at).collect();
        for at in own {
            self.open.remove(&at);
            for counts in lanes(at.1).filter_map(|key| blackbox.as_ref()?.read(key)) {
                self.found.messages += counts.received;
                self.found.bytes += counts.received_bytes;
            }
        }
        self.found.dying = self.found.dying.max(time(death.killed_ns, death.ended_ns));
        self.graves.insert(life, Grave { death, blackbox });
    }

    /// The host has died.
    pub fn bury_host(&mut self, death: Death) {
        self.host_killed_ns = death.killed_ns;
    }

    /// A guest has reported a path.
    pub fn join(&mut self, own: Life, peer: Life, key: u64, joined_ns: u64) {
        self.told.insert((own, key));
        self.open.insert((own, key), OpenPath { peer, joined_ns });
    }

    /// A guest has reported the end of a path: checks that it had to end, in time, and with the right counts.
    ///
    /// # Errors
    /// What is wrong.
    pub fn sever(&mut self, severed: &Severed, late_after: Duration) -> Result<(), String> {
        let Severed { survivor, key, at_ns, .. } = *severed;
        let path = self.open.remove(&(survivor, key));
        let path = path
            .ok_or_else(|| format!("{survivor} reports the end of a path that it does not have"))?;
        let what = || format!("path {key:x} from {survivor} to {}", path.peer);
        for lane in &severed.lanes {
            self.found.messages += lane.received;
            self.found.bytes += lane.received_bytes;
        }
        if !severed.gone {
            return Err(format!("{} has ended for another reason: {}", what(), severed.reason));
        }
        if let Some(unanswered) = severed.unanswered {
            check_unanswered(&severed.lanes, unanswered)
                .map_err(|wrong| format!("{}: {wrong}", what()))?;
            self.found.unanswered += unanswered;
        }
        let Some(grave) = self.graves.get(&path.peer) else {
            let never_made = !self.told.contains(&(path.peer, key));
            let since_ns = at_ns.saturating_sub(self.host_killed_ns);
            if never_made && self.host_killed_ns > 0 && since_ns < HALF_MADE_NS_MAX {
                self.found.half_made += 1;
                return Ok(());
            }
            return Err(format!("{} has ended though both live", what()));
        };
        let Death { killed_ns, ended_ns } = grave.death;
        let after_kill = time(killed_ns.max(path.joined_ns), at_ns);
        let after_end = time(ended_ns.max(path.joined_ns), at_ns);
        let found = &mut self.found;
        found.severed += 1;
        found.worst_after_kill = found.worst_after_kill.max(after_kill);
        found.worst_after_end = found.worst_after_end.max(after_end);
        if after_end > late_after {
            found.late.push(format!("{} after {:.1} ms", what(), after_end.as_secs_f64() * 1e3));
        }
        for (survivor, key) in severed.lanes.iter().zip(lanes(key)) {
            let dead = grave.blackbox.as_ref().and_then(|blackbox| blackbox.read(key));
            let dead = dead.unwrap_or_default();
            check(survivor, &dead).map_err(|wrong| {
                format!("{}: {wrong}; survivor {survivor:?}, dead {dead:?}", what())
            })?;
            let purged = survivor.purged + dead.purged;
            self.found.unfinished += (dead.attempted - survivor.received).saturating_sub(purged);
            self.found.unread += survivor.completed.saturating_sub(dead.received + purged);
            self.found.purged += purged;
        }
        Ok(())
    }

    /// Whether a guest has reported a path to another.
    pub fn has_path(&self, own: Life, peer: Life) -> Option<u64> {
        let own = self.open.range((own, 0)..=(own, u64::MAX));
        own.filter(|(_, path)| path.peer == peer).map(|((_, key), _)| *key).next()
    }

    /// All paths that living guests have reported, by the reporting guest.
    pub fn open(&self) -> impl Iterator<Item = (Life, u64, OpenPath)> {
        self.open.iter().map(|((own, key), path)| (*own, *key, *path))
    }

    /// Paths to the dead of which the end has not been reported yet.
    pub fn overdue(&self) -> Vec<String> {
        let overdue = self.open().filter(|(.., path)| self.graves.contains_key(&path.peer));
        overdue.map(|(own, key, path)| format!("{own} has path {key:x} to {}", path.peer)).collect()
    }

    /// Forgets the dead. Only while no guest has a path to any of them.
    pub fn forget(&mut self) {
        assert!(self.overdue().is_empty(), "a guest has a path to the dead");
        self.graves.clear();
        let Ledger { told, open, .. } = self;
        told.retain(|at| open.contains_key(at));
    }
}

/// From one time to another; nothing if that is the earlier one.
fn time(from_ns: u64, to_ns: u64) -> Duration {
    Duration::from_nanos(to_ns.saturating_sub(from_ns))
}

/// The keys of a path's queues.
pub fn lanes(key: u64) -> impl Iterator<Item = u64> {
    (0..super::wire::LANES_MAX as u64).map(move |lane| key + lane)
}

/// Each message that was sent is answered or was taken back, or its source knows that it will not be.
fn check_unanswered(lanes: &[LaneCounts], unanswered: u64) -> Result<(), String> {
    let sent: u64 = lanes.iter().map(|lane| lane.completed).sum();
    let answered: u64 = lanes.iter().map(|lane| lane.received).sum();
    let purged: u64 = lanes.iter().map(|lane| lane.purged).sum();
    if sent == answered + unanswered + purged {
        return Ok(());
    }
    Err(format!(
        "{sent} messages sent, {answered} answered, {purged} taken back, {unanswered} known to be unanswered"
    ))
}

/// Holds what a survivor has counted against the black box of the dead.
fn check(survivor: &LaneCounts, dead: &LaneCounts) -> Result<(), String> {
    let within = |what: &str, number: u64, least: u64, most: u64| {
        if (least..=most).contains(&number) {
            return Ok(());
        }
        Err(format!("{number} messages {what}: must be {least} to {most}"))
    };
    // What a source takes back is not received, or its reply is not.
    let purged = survivor.purged + dead.purged;
    within(
        "received of those the dead has sent",
        survivor.received,
        dead.completed.saturating_sub(purged),
        dead.attempted,
    )?;
    within("acknowledged by the dead", survivor.acknowledged, 0, dead.received)?;
    within("received by the dead", dead.received, 0, survivor.attempted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Life = Life { guest: 0, number: 0 };
    const B: Life = Life { guest: 1, number: 0 };

    fn severed(at_ns: u64) -> Severed {
        let lanes = vec![LaneCounts::default()];
        Severed {
            survivor: A,
            key: 256,
            at_ns,
            gone: true,
            reason: String::new(),
            lanes,
            unanswered: None,
        }
    }

    const DEATH: Death = Death { killed_ns: 100, ended_ns: 110 };

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.join(A, B, 256, 10);
        ledger.join(B, A, 256, 10);
        ledger
    }

    #[test]
    fn end_of_a_path_is_explained_by_a_death_and_measured_from_it() {
        let mut ledger = ledger();
        ledger.bury(B, DEATH, None);
        assert_eq!(ledger.overdue().len(), 1);
        assert_eq!(ledger.sever(&severed(150), Duration::from_nanos(30)), Ok(()));
        assert_eq!(ledger.found.late.len(), 1);
        let Found { worst_after_kill, worst_after_end, dying, .. } = ledger.found;
        let times = [worst_after_kill, worst_after_end, dying].map(|time| time.as_nanos());
        assert_eq!((ledger.found.severed, times), (1, [50, 40, 10]));
        assert!(ledger.overdue().is_empty());
        assert!(ledger.sever(&severed(150), Duration::ZERO).is_err(), "told twice");
    }

    #[test]
    fn end_of_a_path_between_the_living_is_wrong() {
        assert!(ledger().sever(&severed(150), Duration::ZERO).is_err());
        let mut half_made = Ledger::default();
        half_made.join(A, B, 256, 10);
        assert!(half_made.sever(&severed(150), Duration::ZERO).is_err());
        half_made.join(A, B, 256, 10);
        half_made.bury_host(Death { killed_ns: 12, ended_ns: 12 });
        assert_eq!(half_made.sever(&severed(150), Duration::ZERO), Ok(()));
    }

    #[test]
    fn unanswered_message_that_its_source_was_not_told_of_is_wrong() {
        let told_of = |unanswered| {
            let counts = LaneCounts { completed: 10, received: 4, purged: 1, ..Default::default() };
            let lanes = vec![counts];
            let mut ledger = ledger();
            ledger.bury(B, DEATH, None);
            ledger.sever(
                &Severed { lanes, unanswered: Some(unanswered), ..severed(110) },
                Duration::ZERO,
            )
        };
        for wrong in [4, 6] {
            let error = told_of(wrong).unwrap_err();
            assert!(error.contains("known to be unanswered"), "{error}");
        }
        // The dead of this test has no black box: what is wrong then are its counts.
        assert!(!told_of(5).unwrap_err().contains("unanswered"));
    }

    #[test]
    fn counts_that_no_kill_explains_are_wrong() {
        let survivor =
            LaneCounts { attempted: 9, acknowledged: 4, received: 5, ..Default::default() };
        let dead = LaneCounts { attempted: 7, completed: 5, received: 4, ..Default::default() };
        assert_eq!(check(&survivor, &dead), Ok(()));
        for wrong in [
            LaneCounts { received: 4, ..survivor },
            LaneCounts { received: 8, ..survivor },
            LaneCounts { acknowledged: 5, ..survivor },
            LaneCounts { attempted: 3, ..survivor },
        ] {
            assert!(check(&wrong, &dead).is_err(), "{wrong:?}");
        }
        let source = LaneCounts { purged: 1, ..survivor };
        assert_eq!(check(&LaneCounts { received: 4, ..source }, &dead), Ok(()));
        assert!(check(&LaneCounts { received: 3, ..source }, &dead).is_err());
    }
}
