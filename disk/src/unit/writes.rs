//! Direct writes of a volume that are under way, and the exchanges that end with them.
//!
//! A write goes from a place of its own, so the track may change, or leave the cache, before the write is over. One write of a track is
//! under way at a time: of two that share a sector the later one could reach the disk first. What is written to the track meanwhile
//! waits for it, and then goes as one write, with all who wait.
//!
//! A write that fails alone is done once more by a call. A call changes pages in the kernel's page cache, and a page goes to the disk as a
//! whole, with what it has of the next track. So nothing is begun while a write waits for its call, and the call is made when no other
//! write is under way.

use std::io;
use std::ops::Range;

use os::uring::{Ended, Piece};

use super::cache::Slot;
use super::flight::Ticket;
use super::ordered::Ordered;
use super::{Connection, Exchange, Mounted, Syncing, Unit};
use crate::ckd::backing::{is_passing, is_refusal};
use crate::ckd::direct::DirectWrites;
use crate::ckd::model::SECTOR_BYTES;
use crate::ckd::volume::Volume;
use crate::format::fault::Fault;
use channel::exchange::Broken;

/// Writes that are over of which a pass takes so many. The first of a burst go to their guests, who start the next ones, while
/// the rest is taken.
pub(super) const WRITES_PER_POLL_MAX: usize = 8;

/// Tracks that wait to be written, and their bytes. Whoever writes more waits for the disk, with everybody else.
const WAITING_TRACKS_MAX: usize = 1024;
const WAITING_BYTES_MAX: usize = 16 << 20;

const NO_TRACK: u32 = u32::MAX;

/// What is to be written of a track.
#[derive(Debug, Default)]
struct Job {
    track: u32,
    /// Whole sectors.
    part: Range<usize>,
    /// Exchanges that end with it.
    writers: Vec<Ticket>,
    /// A sync has failed while it was under way: the disk may have lost it, though it says that it has it.
    is_spoiled: bool,
}

/// A write that is over. Its place is free.
struct Landed {
    place: usize,
    job: Job,
    is_whole: bool,
    /// The file takes no direct writes any more, or none of this kind.
    is_refused: bool,
}

/// The direct writes of one volume.
#[derive(Debug)]
pub(super) struct Writes {
    direct: DirectWrites,
    /// By place: the track that is written, in an array of their own because it is searched.
    tracks: Vec<u32>,
    jobs: Vec<Job>,
    free: Vec<u16>,
    /// What waits for a place, or for a write of the same track. A track is there once.
    waiting: Ordered<u32, (Job, Vec<u8>)>,
    waiting_bytes: usize,
    /// What has failed, and is done once more by a call when nothing is under way.
    failed: Vec<(Job, Vec<u8>)>,
    /// Writes were begun that the kernel does not know of.
    is_begun: bool,
    /// A write was refused: nothing is begun any more.
    is_refused: bool,
}

impl Writes {
    pub(super) fn new(direct: DirectWrites) -> Writes {
        let places = direct.writes.places().min(usize::from(u16::MAX));
        let mut jobs = Vec::new();
        jobs.resize_with(places, Job::default);
        Writes {
            direct,
            tracks: vec![NO_TRACK; places],
            jobs,
            free: (0..places as u16).rev().collect(),
            waiting: Ordered::default(),
            waiting_bytes: 0,
            failed: Vec::new(),
            is_begun: false,
            is_refused: false,
        }
    }

    /// How many writes are under way.
    pub(super) fn count(&self) -> usize {
        self.jobs.len() - self.free.len()
    }

    /// Whether the file may not have yet what was written to a track.
    pub(super) fn has(&self, track: u32) -> bool {
        self.tracks.contains(&track)
            || self.waiting.has(track)
            || self.failed.iter().any(|(job, _)| job.track == track)
    }

    /// Nothing is begun while a write waits for its call, and when writes are refused. Then something is under way, or all is over.
    fn may_begin(&self) -> bool {
        self.failed.is_empty() && !self.is_refused
    }

    fn is_full(&self) -> bool {
        self.waiting_bytes > WAITING_BYTES_MAX || self.waiting.len() > WAITING_TRACKS_MAX
    }

    /// Writes a part of a track, of which `bytes` are all. Returns whether one more write is waited for: not if the part goes together with
    /// what the same writer waits for already.
    fn write(
        &mut self,
        volume: &Volume,
        track: u32,
        part: Range<usize>,
        writer: Ticket,
        bytes: &[u8],
    ) -> bool {
        let first = part.start / SECTOR_BYTES * SECTOR_BYTES;
        let part = first..part.end.next_multiple_of(SECTOR_BYTES);
        if let Some((job, data)) = self.waiting.get_mut(track) {
            self.waiting_bytes -= data.len();
            job.part = job.part.start.min(part.start)..job.part.end.max(part.end);
            data.clear();
            data.extend(&bytes[job.part.clone()]);
            self.waiting_bytes += data.len();
            let is_new = !job.writers.contains(&writer);
            if is_new {
                job.writers.push(writer);
            }
            return is_new;
        }
        let job = Job { track, part, writers: vec![writer], is_spoiled: false };
        if self.free.is_empty() || !self.may_begin() || self.tracks.contains(&track) {
            let data = bytes[job.part.clone()].to_vec();
            self.waiting_bytes += data.len();
            self.waiting.push(track, (job, data));
        } else {
            let part = job.part.clone();
            self.begin(volume, job, &bytes[part]);
        }
        true
    }

    /// Begins a write. There is a place.
    fn begin(&mut self, volume: &Volume, job: Job, data: &[u8]) {
        let place = usize::from(self.free.pop().expect("a place"));
        let (file, start) = volume.place(job.track);
        let offset = start + job.part.start as u64;
        self.direct.writes.begin(place, Piece { file, offset, bytes: data.len() }, data);
        self.tracks[place] = job.track;
        self.jobs[place] = job;
        self.is_begun = true;
    }

    /// Begins what waits, as far as there are places.
    fn begin_waiting(&mut self, volume: &Volume) {
        if !self.may_begin() {
            return;
        }
        // Of those that wait each is for another track, so no more than places are passed over.
        let tracks = self.waiting.iter().map(|(track, _)| track);
        let ready = tracks.filter(|track| !self.tracks.contains(track)).take(self.free.len());
        for track in ready.collect::<Vec<_>>() {
            let (job, data) = self.waiting.remove(track).expect("seen above");
            self.waiting_bytes -= data.len();
            self.begin(volume, job, &data);
        }
    }

    /// Hands over what was begun. False if the kernel has no room for all of it now.
    fn submit(&mut self) -> io::Result<bool> {
        if self.is_begun {
            match self.direct.writes.submit() {
                Ok(()) => self.is_begun = false,
                Err(error) if is_passing(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn land(&mut self) -> Option<Landed> {
        if self.count() == 0 {
            return None;
        }
        let Ended { place, bytes } = self.direct.writes.ended()?;
        let job = std::mem::take(&mut self.jobs[place]);
        self.tracks[place] = NO_TRACK;
        self.free.push(place as u16);
        let is_refused = bytes.as_ref().is_err_and(is_refusal);
        let is_whole = bytes.is_ok_and(|bytes| bytes == job.part.len());
        Some(Landed { place, job, is_whole, is_refused })
    }

    /// Keeps what has failed, with its data.
    fn keep_failed(&mut self, place: usize, job: Job) {
        let data = self.direct.writes.data(place)[..job.part.len()].to_vec();
        self.failed.push((job, data));
    }

    /// Takes out what waits for a track.
    fn drop_waiting(&mut self, track: u32) -> Vec<Ticket> {
        let Some((job, data)) = self.waiting.remove(track) else { return Vec::new() };
        self.waiting_bytes -= data.len();
        job.writers
    }
}

impl Mounted {
    /// Writes a part of a track from the cache, for an exchange that ends with it.
    pub(super) fn write_directly(
        &mut self,
        exchange: &mut Exchange,
        slot: Slot,
        track: u32,
        part: Range<usize>,
    ) {
        let writer = exchange.writer.unwrap_or_else(|| self.next_writer(exchange.connection));
        exchange.writer = Some(writer);
        let Mounted { volume, cache, writes: Some(writes), .. } = self else { return };
        let is_more = writes.write(volume, track, part, writer, cache.bytes(slot));
        exchange.unwritten += u32::from(is_more);
        while self.writes.as_ref().is_some_and(Writes::is_full) {
            exchange.disconnect_time.begin(self.clock);
            self.wait_for_write();
        }
        exchange.disconnect_time.end(self.clock);
    }

    /// Takes writes that are over, so many at most. Returns whether there was any.
    pub(super) fn land_writes(&mut self, most: usize) -> bool {
        let mut found = false;
        for _ in 0..most {
            let Mounted { volume, writes: Some(writes), .. } = self else { break };
            let Some(landed) = writes.land() else { break };
            let Landed { place, job, is_whole, is_refused } = landed;
            found = true;
            writes.is_refused |= is_refused;
            if is_whole || job.is_spoiled {
                let is_done = !job.is_spoiled;
                writes.begin_waiting(volume);
                self.end_job(job, is_done);
            } else {
                writes.keep_failed(place, job);
            }
            self.write_failed();
        }
        found
    }

    /// Does once more by calls what has failed, if nothing is under way. That ends direct writes if one was refused.
    fn write_failed(&mut self) {
        let Mounted { volume, writes: Some(writes), .. } = self else { return };
        if writes.may_begin() || writes.count() > 0 {
            return;
        }
        let mut done = Vec::new();
        for (mut job, data) in std::mem::take(&mut writes.failed) {
            let is_done = job.write_by_call(volume, &data);
            if !is_done {
                // What waits is to go into the midst of what has failed.
                job.writers.extend(writes.drop_waiting(job.track));
            }
            done.push((job, is_done));
        }
        let is_refused = writes.is_refused;
        writes.begin_waiting(volume);
        done.into_iter().for_each(|(job, is_done)| self.end_job(job, is_done));
        if is_refused {
            self.give_up_writes();
        }
    }

    /// Waits for the disk: until a write is over, if the kernel does not lack anything. There is one.
    fn wait_for_write(&mut self) {
        let Some(writes) = &mut self.writes else { return };
        match writes.direct.writes.wait() {
            Err(error) if !is_passing(&error) => self.give_up_writes(),
            // Not all that was begun is handed over, perhaps.
            _ => drop(self.land_writes(usize::MAX)),
        }
    }

    /// The file has all that was written to a track when this returns, or nobody knows what it has.
    pub(super) fn finish_writes(&mut self, track: u32) {
        while self.writes.as_ref().is_some_and(|writes| writes.has(track)) {
            self.wait_for_write();
        }
    }

    /// Whether the file may not have yet what was written to a track.
    pub(super) fn is_being_written(&self, track: u32) -> bool {
        self.writes.as_ref().is_some_and(|writes| writes.has(track))
    }

    /// Hands over the writes that were begun. False if the kernel has no room for all of them now.
    pub(super) fn submit_writes(&mut self) -> bool {
        match self.writes.as_mut().map(Writes::submit) {
            None | Some(Ok(true)) => true,
            Some(Ok(false)) => false,
            Some(Err(_)) => {
                self.give_up_writes();
                false
            }
        }
    }

    /// The kernel takes no more direct writes. What was under way counts as failed, and what waits for the same tracks; what else waits,
    /// and everything from now on, is written by calls.
    fn give_up_writes(&mut self) {
        let Some(mut writes) = self.writes.take() else { return };
        while let Some(Landed { place, job, is_whole, .. }) = writes.land() {
            if is_whole || job.is_spoiled {
                let is_done = !job.is_spoiled;
                self.end_job(job, is_done);
            } else {
                writes.keep_failed(place, job);
            }
        }
        let Writes { direct, mut tracks, jobs, mut waiting, failed, .. } = writes;
        // Waits for what the kernel has.
        drop(direct);
        let under_way = tracks.iter().zip(jobs).filter(|(track, _)| **track != NO_TRACK);
        under_way.for_each(|(_, job)| self.end_job(job, false));
        for (job, data) in failed.into_iter().chain(waiting.remove_where(|_| true)) {
            let is_done =
                !tracks.contains(&job.track) && job.write_by_call(&mut self.volume, &data);
            if !is_done {
                tracks.push(job.track);
            }
            self.end_job(job, is_done);
        }
    }

    /// A sync has failed. The disk may have lost what is under way too, and what waits is not written any more. Returns the tracks of all of
    /// these.
    pub(super) fn spoil_writes(&mut self) -> Vec<u32> {
        let Some(writes) = &mut self.writes else { return Vec::new() };
        let failed = writes.failed.iter_mut().map(|(job, _)| job);
        writes.jobs.iter_mut().chain(failed).for_each(|job| job.is_spoiled = true);
        let under_way = writes.tracks.iter().filter(|track| **track != NO_TRACK);
        let failed = writes.failed.iter().map(|(job, _)| &job.track);
        let mut tracks: Vec<u32> = under_way.chain(failed).copied().collect();
        writes.waiting_bytes = 0;
        for (job, _) in writes.waiting.remove_where(|_| true) {
            tracks.push(job.track);
            self.written.extend(job.writers.into_iter().map(|writer| (writer, false)));
        }
        tracks
    }

    /// What was to be written is in the file, and to be synced unless the file needs no sync; or nobody knows what the file has of its
    /// track.
    fn end_job(&mut self, job: Job, is_done: bool) {
        self.written.extend(job.writers.into_iter().map(|writer| (writer, is_done)));
        match (is_done, self.syncing) {
            (true, Syncing::Fdatasync) => self.unsynced.push(job.track),
            (true, Syncing::File) => {}
            (false, _) => self.forget(job.track),
        }
    }
}

impl Unit {
    /// Ends the exchanges of a volume whose direct writes are over. Returns whether there was any.
    #[inline]
    pub(super) fn end_writes(&mut self, volume: usize) -> bool {
        let mut found = false;
        while let Some((writer, is_done)) = self.volumes[volume].written.pop_front() {
            found = true;
            self.end_write(volume, writer, is_done);
        }
        found
    }

    /// A write of an exchange is over.
    fn end_write(&mut self, volume: usize, writer: Ticket, is_done: bool) {
        let place = usize::from(writer.connection);
        // It may be gone.
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else {
            return;
        };
        let link = connection.link;
        let sent = self.end_write_of(volume, &mut connection, writer, is_done);
        self.connections[place] = Some(connection);
        if sent.is_err() {
            self.drop_link(link);
        }
    }

    fn end_write_of(
        &mut self,
        volume: usize,
        connection: &mut Connection,
        writer: Ticket,
        is_done: bool,
    ) -> Result<(), Broken> {
        if connection.device.volume != volume {
            // The guest is gone, and another one has its number.
            return Ok(());
        }
        let is_it = |exchange: &Exchange| exchange.writer == Some(writer);
        let Mounted { endings, syncing, .. } = &mut self.volumes[volume];
        let key = (writer.connection, writer.serial);
        let Some(ending) = endings.get_mut(key) else {
            // It goes on, or is gone.
            if let Some(exchange) = connection.exchanges.iter_mut().find(|one| is_it(one)) {
                exchange.end_write(is_done, *syncing);
            }
            return Ok(());
        };
        let exchange = &mut ending.exchange;
        exchange.end_write(is_done, *syncing);
        // It waits for a sync too, unless nothing of it has come to the file, or the file needs none.
        if exchange.unwritten > 0 || exchange.is_unsynced {
            return Ok(());
        }
        let mut ending = endings.remove(key).expect("seen above");
        if ending.exchange.has_failed {
            ending.fail(Fault::Equipment, connection);
        }
        self.send_ending(connection, &mut ending)
    }
}

impl Job {
    /// Writes what has failed, or what waits, by a call that waits. Returns whether the file has it.
    fn write_by_call(&self, volume: &mut Volume, data: &[u8]) -> bool {
        !self.is_spoiled && volume.write(self.track, self.part.start, data).is_ok()
    }
}

impl Exchange {
    /// A direct write of it is over.
    fn end_write(&mut self, is_done: bool, syncing: Syncing) {
        self.unwritten -= 1;
        self.is_unsynced |= is_done && syncing == Syncing::Fdatasync;
        self.has_failed |= !is_done;
    }
}
