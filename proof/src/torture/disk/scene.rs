//! The supervisor of disks: starts, kills, and holds volumes against ledgers.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use os::processor::now_ns;
use siga::disk::ckd::check::check;
use siga::disk::ckd::create::{Blocks, NewVolume, create};
use siga::disk::ckd::model::{HEADS, TRACK_BYTES};
use siga::disk::ckd::volume::{Access, Volume};
use siga::disk::{BLOCK_BYTES, open_volume};
use siga::host::Observer;
use siga::host::report::{ControlUnitReport, VolumeWriting};

use super::super::birth::Birth;
use super::ledger::Reader;
use super::schedule::{Round, Victim};
use super::{Arguments, BLOCKS, CYLINDERS, Plan, VOLUMES, WRITERS, ledger, volume};
use crate::crew::{self, Workplace};
use crate::footprint::Footprint;

/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Writes of each writer that are acknowledged between two kills, at least.
const WRITES_BETWEEN: u64 = 4;

/// Kills between two inspections for leaks.
const KILLS_PER_INSPECTION: u64 = 25;

/// What the torture has come to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills of the control unit.
    pub server_kills: u64,
    /// Kills of the host.
    pub host_kills: u64,
    /// Kills of guests that write.
    pub writer_kills: u64,
    /// Blocks of volumes that were held against what was acknowledged, after a kill of the control unit.
    pub blocks: u64,
    /// Checks for leaks.
    pub inspections: u64,
    /// Volumes that were written directly, past the page cache, at every inspection. None before the first one.
    pub direct_volumes: Option<usize>,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// See the top of the file.
#[derive(Debug)]
pub struct Scene {
    workplace: Workplace,
    patience: Duration,
    host: Option<Child>,
    server: Option<Child>,
    writers: Vec<Option<Child>>,
    lives: u32,
    ledgers: Vec<Reader>,
    baseline: BTreeMap<&'static str, Footprint>,
    inspected: u64,
    tally: Tally,
}

/// The control unit, in what is said of it.
const SERVER: &str = "the control unit";

/// Caches that are lent over a channel path for the first time after the first inspection, at most: one of each volume over each of four
/// paths, without those of the first writers.
const CACHES_MORE_MAX: usize = 4 * VOLUMES.len() - WRITERS;

type Checked<T = ()> = Result<T, String>;

fn said(error: impl fmt::Display) -> String {
    error.to_string()
}

impl Scene {
    /// New volumes, and no process.
    ///
    /// # Errors
    /// In words.
    pub fn new(patience: Duration) -> Checked<Scene> {
        let workplace = Workplace::create().map_err(said)?;
        let directory = workplace.directory();
        for number in 0..VOLUMES.len() {
            let new = NewVolume {
                cylinders: CYLINDERS,
                name: format!("TORT0{number}"),
                today: (2000, 1),
                split: false,
            };
            create(&volume(directory, number), &new, |_| {}).map_err(said)?;
        }
        let ledgers = (0..WRITERS).map(|writer| Reader::open(&ledger(directory, writer)));
        let ledgers = ledgers.collect::<io::Result<_>>().map_err(said)?;
        Ok(Scene {
            workplace,
            patience,
            host: None,
            server: None,
            writers: (0..WRITERS).map(|_| None).collect(),
            lives: 0,
            ledgers,
            baseline: BTreeMap::new(),
            inspected: 0,
            tally: Tally::default(),
        })
    }

    /// What it has come to so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Writes that were acknowledged.
    pub fn writes(&self) -> u64 {
        self.ledgers.iter().map(|ledger| ledger.known.writes).sum()
    }

    /// Kills so far.
    pub fn kills(&self) -> u64 {
        let Tally { server_kills, host_kills, writer_kills, .. } = self.tally;
        server_kills + host_kills + writer_kills
    }

    /// Kills as these rounds say. `progress` has the number of kills so far.
    ///
    /// # Errors
    /// What is wrong.
    pub fn torture(&mut self, rounds: &[Round], mut progress: impl FnMut(u64)) -> Checked {
        self.start_all()?;
        // What everybody holds when all has been used once, and nobody has a device open.
        self.inspect()?;
        for Round { run_us, victims } in rounds {
            self.start_all()?;
            thread::sleep(Duration::from_micros(*run_us));
            self.kill(victims)?;
            if victims[..] == [Victim::Host] {
                // Nobody needs a host to write.
                self.flow()?;
            }
            if self.kills() - self.inspected >= KILLS_PER_INSPECTION {
                self.inspect()?;
            }
            progress(self.kills());
        }
        self.inspect()?;
        self.kill(&[Victim::Server])?;
        for number in 0..VOLUMES.len() {
            let open = self.open(number)?;
            check(&open, |_| {}, |fault| self.tally.wrong.push(fault.to_string()));
        }
        self.kill(&[Victim::Host])
    }

    fn start_all(&mut self) -> Checked {
        let directory = self.workplace.directory();
        let mut start = |place: &mut Option<Child>, words: &dyn Fn(u32) -> Vec<String>| {
            if place.is_none() {
                self.lives += 1;
                let mut command: Command = crew::this_program();
                let started = command.args(words(self.lives)).stdin(Stdio::null()).spawn();
                *place = Some(started.map_err(said)?);
            }
            Ok::<(), String>(())
        };
        start(&mut self.host, &|life| Birth::words("torture-lan-host", directory, life))?;
        start(&mut self.server, &|life| Birth::words("torture-disk-server", directory, life))?;
        for (number, writer) in self.writers.iter_mut().enumerate() {
            start(writer, &|life| Arguments::words(directory, number, life))?;
        }
        self.flow()
    }

    /// Kills processes, all before the first of them is missed.
    fn kill(&mut self, victims: &[Victim]) -> Checked {
        let mut dying = Vec::new();
        for victim in victims {
            let place = match victim {
                Victim::Server => &mut self.server,
                Victim::Host => &mut self.host,
                Victim::Writer(writer) => &mut self.writers[*writer],
            };
            let mut child = place.take().ok_or_else(|| format!("{victim} is not there"))?;
            child.kill().map_err(said)?;
            dying.push(child);
            let count = match victim {
                Victim::Server => &mut self.tally.server_kills,
                Victim::Host => &mut self.tally.host_kills,
                Victim::Writer(_) => &mut self.tally.writer_kills,
            };
            *count += 1;
        }
        for mut child in dying {
            child.wait().map_err(said)?;
        }
        // Nobody has the volumes now.
        if self.server.is_none() { self.examine() } else { Ok(()) }
    }

    fn open(&self, number: usize) -> Checked<Volume> {
        let file = volume(self.workplace.directory(), number);
        open_volume(&file, Access::Read).map_err(said)
    }

    /// Holds every block of the volumes against what was acknowledged of it.
    fn examine(&mut self) -> Checked {
        let mut contents = Vec::new();
        for number in 0..VOLUMES.len() {
            let open = self.open(number)?;
            let blocks = Blocks::find(&open).map_err(said)?;
            let mut content = Vec::new();
            blocks.export(&open, &mut content, blocks.count(), |_| {}).map_err(said)?;
            contents.push(content);
        }
        for (writer, ledger) in self.ledgers.iter_mut().enumerate() {
            // What is acknowledged now was on the file before the kill.
            ledger.catch_up().map_err(said)?;
            let plan = Plan::of(writer);
            for block in 0..BLOCKS {
                let at = (plan.first_block() + block) as usize * BLOCK_BYTES;
                let found = &contents[plan.volume][at..at + BLOCK_BYTES];
                ledger.known.check(writer, block, found)?;
                self.tally.blocks += 1;
            }
        }
        Ok(())
    }

    /// Waits until writes of each writer were acknowledged, after this moment.
    fn flow(&mut self) -> Checked {
        let writes = |scene: &mut Scene| -> Checked<Vec<u64>> {
            let ledgers = scene.ledgers.iter_mut();
            let writes = ledgers.map(|ledger| {
                ledger.catch_up().map_err(said)?;
                Ok(ledger.known.writes)
            });
            writes.collect()
        };
        let before = writes(self)?;
        self.until("writes are not acknowledged", |scene| {
            let now = writes(scene)?;
            let has_more = |(now, before): (&u64, &u64)| *now >= before + WRITES_BETWEEN;
            Ok(now.iter().zip(&before).all(has_more))
        })
    }

    /// Has no guest write, and finds that nothing is held for any.
    fn inspect(&mut self) -> Checked {
        self.inspected = self.kills();
        // Control unit and host are to be of the same life from here to the look.
        self.start_all()?;
        for writer in 0..WRITERS {
            self.kill(&[Victim::Writer(writer)])?;
        }
        self.tally.inspections += 1;
        let socket = crew::host_socket(self.workplace.directory());
        let (mut observer, mut left) = (None, String::new());
        let quiet = self.until("something is left of guests that were killed", |scene| {
            // A host that has just been started does not listen yet.
            if observer.is_none() {
                observer = Observer::attach(&socket).ok();
            }
            let Some(observer) = &observer else { return Ok(false) };
            let report = observer.query().map_err(said)?;
            left = format!("{} paths, {}", report.paths.len(), held(&report.control_units));
            if !report.paths.is_empty() || left != "0 paths, 0 open, 0 subchannels, 0 pinned" {
                return Ok(false);
            }
            let directly = directly_written(&report.control_units);
            let before = scene.tally.direct_volumes.unwrap_or(directly);
            scene.tally.direct_volumes = Some(before.min(directly));
            let processes = [(SERVER, &scene.server), ("the host", &scene.host)];
            let mut leaks = Vec::new();
            for (who, child) in processes {
                let process = child.as_ref().map_or(0, Child::id);
                let found = Footprint::of(process).map_err(said)?;
                let before = scene.baseline.entry(who).or_insert(found);
                before.lower_to(&found);
                let before = *before;
                let before = if who == SERVER { with_more_caches(before, &found) } else { before };
                leaks
                    .extend(found.leaks_since(&before).iter().map(|leak| format!("{who}: {leak}")));
            }
            // Descriptors of a path that has ended are closed a moment later.
            left = leaks.join("; ");
            Ok(leaks.is_empty())
        });
        quiet.map_err(|error| format!("{error}: {left}"))
    }

    /// Waits until `is_done`; it is a fault if that takes longer than patience lasts, or if a process ends by itself.
    fn until(
        &mut self,
        what: &str,
        mut is_done: impl FnMut(&mut Scene) -> Checked<bool>,
    ) -> Checked {
        let give_up_ns = now_ns() + self.patience.as_nanos() as u64;
        loop {
            let children = self.writers.iter_mut().chain([&mut self.server, &mut self.host]);
            for child in children.flatten() {
                if let Some(status) = child.try_wait().map_err(said)? {
                    return Err(format!("process {} has ended by itself: {status}", child.id()));
                }
            }
            if is_done(self)? {
                return Ok(());
            }
            if now_ns() >= give_up_ns {
                return Err(format!("hangs: {what}"));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let children = self.writers.iter_mut().chain([&mut self.server, &mut self.host]);
        for child in children.flatten() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Shared memory that a control unit may touch later than at first: pages of its channel paths, when more units are under way than
/// before. What a guest leaves behind is mapped, and mappings are counted one by one.
const TOUCHED_LATER_BYTES: u64 = 2 << 20;

/// What a control unit may hold that held `before` at first. It lends the cache of a volume over a channel path when the first guest of
/// that path needs it, and keeps it lent. Which path a guest has depends on how fast the end of the one before it is noticed.
fn with_more_caches(before: Footprint, found: &Footprint) -> Footprint {
    let caches = found.others.saturating_sub(before.others).min(CACHES_MORE_MAX);
    let cache_bytes = caches as u64 * u64::from(CYLINDERS * HEADS + 1) * TRACK_BYTES as u64;
    Footprint {
        others: before.others + caches,
        bytes: before.bytes + cache_bytes + TOUCHED_LATER_BYTES,
        shared_bytes: before.shared_bytes + cache_bytes + TOUCHED_LATER_BYTES,
        ..before
    }
}

/// Volumes that a control unit writes past the page cache.
fn directly_written(units: &[ControlUnitReport]) -> usize {
    let volumes = units.iter().flat_map(|unit| &unit.volumes);
    volumes.filter(|volume| volume.writing == Some(VolumeWriting::Direct)).count()
}

/// What a control unit holds for guests.
fn held(units: &[ControlUnitReport]) -> String {
    let Some(unit) = units.first() else { return "no control unit".into() };
    let open: u32 = unit.devices.iter().map(|device| device.open).sum();
    let pinned: u32 = unit.volumes.iter().map(|volume| volume.cache_tracks_pinned).sum();
    format!("{open} open, {} subchannels, {pinned} pinned", unit.subchannels.len())
}
