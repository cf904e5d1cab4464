//! How an exchange ends: at once, or when what it has written survives a crash.

use super::cache::Cache;
use super::output::{self, Output};
use super::{Connection, Exchange, SUBCHANNELS, Unit};
use crate::format::fault::Fault;
use crate::format::scsw::DeviceStatus;
use crate::format::sense::{SENSE_BYTES, Sense};
use channel::exchange::{Broken, DISCONNECT_TIME_BYTES, Head, Kind, flag};

/// How an exchange ends.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) exchange: Exchange,
    pub(super) kind: Kind,
    pub(super) status: DeviceStatus,
    pub(super) residual: u32,
    pub(super) flags: u8,
    pub(super) sense: Sense,
    /// Data, of a transport response.
    pub(super) output: Output,
    /// It waits for the disk, with so many bytes that it has copied: see [`Unit::keep_copied`].
    pub(super) waiting_bytes: usize,
    /// It ends busy because its device is reserved, and waits until the device is free: perhaps to reserve it.
    pub(super) waits_to_reserve: Option<bool>,
}

impl Unit {
    /// Ends an exchange: at once, or with its last direct write, or with the next sync if that is to make what it has written survive.
    pub(super) fn end(
        &mut self,
        connection: &mut Connection,
        mut ending: Ending,
    ) -> Result<(), Broken> {
        let number = ending.exchange.number;
        connection.over[number as usize % SUBCHANNELS] = number;
        // Its output data are in the cache by now, or are not used.
        self.give_back_room(connection, &mut ending.exchange);
        let cache = &mut self.volumes[connection.device.volume].cache;
        ending.exchange.release_held(cache);
        if ending.exchange.has_failed {
            ending.fail(Fault::Equipment, connection);
        }
        if !ending.exchange.is_unsynced && ending.exchange.unwritten == 0 {
            return self.send_ending(connection, &mut ending);
        }
        ending.exchange.disconnect_time.begin(self.clock);
        self.keep_copied(connection, &mut ending);
        let mounted = &mut self.volumes[connection.device.volume];
        let Exchange { connection: number, writer, .. } = ending.exchange;
        let writer = writer.unwrap_or_else(|| mounted.next_writer(number));
        ending.exchange.writer = Some(writer);
        mounted.endings.push((number, writer.serial), ending);
        Ok(())
    }

    /// An exchange waits for the disk. The bytes that it has copied are counted until it ends; if they are too many it ends without
    /// them, in overrun.
    fn keep_copied(&mut self, connection: &mut Connection, ending: &mut Ending) {
        let bytes = ending.output.copied_bytes();
        if output::is_full(connection.copied_bytes, self.copied_bytes, bytes) {
            ending.output = Output::default();
            ending.fail(Fault::Overrun, connection);
            return;
        }
        ending.waiting_bytes = bytes;
        connection.copied_bytes += bytes;
        self.copied_bytes += bytes;
    }

    pub(super) fn send_ending(
        &mut self,
        connection: &mut Connection,
        ending: &mut Ending,
    ) -> Result<(), Broken> {
        let Ending { exchange, kind, status, residual, flags, sense, output, .. } = ending;
        let (waiting_bytes, waits_to_reserve) =
            (&mut ending.waiting_bytes, ending.waits_to_reserve);
        let mounted = &mut self.volumes[connection.device.volume];
        // What was written has come to the file by now.
        exchange.evict_tracks_read(&mut mounted.cache);
        mounted.reservations.note_end();
        let waiting_bytes = std::mem::take(waiting_bytes);
        connection.copied_bytes -= waiting_bytes;
        self.copied_bytes -= waiting_bytes;
        self.counters.exchanges += 1;
        self.counters.writes += u64::from(exchange.has_written);
        if *status == DeviceStatus::BUSY {
            // It begins again, and the guest gets nothing of this.
            exchange.slots.iter().for_each(|slot| mounted.cache.unpin(*slot));
            if let Some(reserves) = waits_to_reserve {
                mounted.reservations.wait(exchange.connection, exchange.number, reserves);
                *flags |= flag::WAITS;
            }
        } else {
            connection.ended = connection.ended.wrapping_add(1);
            let ended = connection.ended;
            exchange.slots.iter().for_each(|slot| connection.pins.push_back((ended, *slot)));
        }
        let mut head = Head {
            flags: *flags,
            number: exchange.commands as u16,
            code: status.0,
            count: *residual,
            ..Head::new(*kind, exchange.connection, exchange.number)
        };
        exchange.disconnect_time.end(self.clock);
        let disconnect_ns = exchange.disconnect_time.all_ns();
        let mut tail = [0; DISCONNECT_TIME_BYTES + SENSE_BYTES];
        let mut tail_bytes = 0;
        if disconnect_ns > 0 {
            head.flags |= flag::DISCONNECT_TIME;
            tail[..DISCONNECT_TIME_BYTES].copy_from_slice(&disconnect_ns.to_le_bytes());
            tail_bytes = DISCONNECT_TIME_BYTES;
        }
        if status.has(DeviceStatus::UNIT_CHECK) {
            self.counters.unit_checks += 1;
            connection.sense = *sense;
            head.flags |= flag::SENSE;
            tail[tail_bytes..][..SENSE_BYTES].copy_from_slice(&sense.0);
            tail_bytes += SENSE_BYTES;
        }
        let link = self.link(connection.link)?;
        output.send_with(link, head, &tail[..tail_bytes])
    }

    /// Makes what was written to a volume survive a crash, and ends the operations that wrote. If that fails, nobody writes to the volume any
    /// more, and nothing is begun that waits to be written.
    pub(super) fn sync(&mut self, volume: usize) {
        self.counters.syncs += 1;
        let mounted = &mut self.volumes[volume];
        let synced = mounted.volume.sync();
        let is_synced = synced.is_ok();
        let mut lost = std::mem::take(&mut mounted.unsynced);
        if let Err(error) = synced {
            lost.extend(mounted.spoil_writes());
            mounted.fail(error, &lost);
        }
        for ending in mounted.endings.values_mut() {
            ending.exchange.has_failed |= ending.exchange.is_unsynced && !is_synced;
            ending.exchange.is_unsynced = false;
        }
        // Some have writes that are under way. They stay where a connection that ends finds them.
        let done = mounted.endings.remove_where(|ending| ending.exchange.unwritten == 0);
        // Those that go on have written too.
        let connections = self.connections.iter_mut().flatten();
        for connection in connections.filter(|connection| connection.device.volume == volume) {
            for exchange in &mut connection.exchanges {
                exchange.has_failed |= exchange.is_unsynced && !is_synced;
                exchange.is_unsynced = false;
            }
        }
        for mut ending in done {
            let place = usize::from(ending.exchange.connection);
            let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take)
            else {
                // Its link has broken with the end of another one.
                self.copied_bytes -= ending.waiting_bytes;
                ending.give_up(&mut self.volumes[volume].cache);
                continue;
            };
            if ending.exchange.has_failed {
                ending.fail(Fault::Equipment, &connection);
            }
            let link = connection.link;
            let sent = self.send_ending(&mut connection, &mut ending);
            self.connections[place] = Some(connection);
            if sent.is_err() {
                self.drop_link(link);
            }
        }
    }
}

impl Ending {
    /// Nobody is to hear of it.
    pub(super) fn give_up(mut self, cache: &mut Cache) {
        self.exchange.evict_tracks_read(cache);
        self.exchange.slots.iter().for_each(|slot| cache.unpin(*slot));
    }

    pub(super) fn new(exchange: Exchange, kind: Kind) -> Ending {
        Ending {
            exchange,
            kind,
            status: DeviceStatus::ENDED,
            residual: 0,
            flags: 0,
            sense: Sense::default(),
            output: Output::default(),
            waiting_bytes: 0,
            waits_to_reserve: None,
        }
    }

    /// The exchange could not go on now. One that has written is not to be begun again: what it would write then may be older than
    /// what others have written meanwhile. Nor is one that has taken the sense, which would be gone.
    pub(super) fn be_busy(&mut self, connection: &Connection) {
        if self.exchange.has_written || self.exchange.has_taken_sense {
            self.fail(Fault::Overrun, connection);
        } else {
            self.status = DeviceStatus::BUSY;
        }
    }

    /// The device is reserved. The exchange begins again when the device is free, if it can.
    pub(super) fn be_reserved(&mut self, reserves: bool, connection: &Connection) {
        self.be_busy(connection);
        self.waits_to_reserve = (self.status == DeviceStatus::BUSY).then_some(reserves);
    }

    pub(super) fn fail(&mut self, fault: Fault, connection: &Connection) {
        self.status = DeviceStatus::ENDED.with(DeviceStatus::UNIT_CHECK);
        let track = self.exchange.chain.track();
        let track = track.map(|track| connection.device.shown_number(track));
        let track = track.unwrap_or_default();
        self.sense = fault.sense(track.cylinder, track.head);
    }
}

#[cfg(test)]
mod tests {
    use os::storage::StorageOptions;

    use super::super::output::COPIED_BYTES_MAX;
    use super::*;
    use crate::ckd::backing::Simulated;
    use crate::ckd::header::Header;
    use crate::ckd::model::{HEADS, TRACK_BYTES, track_of};
    use crate::ckd::track;
    use crate::ckd::volume::{Access, Volume};
    use crate::unit::device::Device;

    #[test]
    fn bytes_that_are_copied_for_exchanges_which_wait_for_the_disk_are_bounded() {
        let mut image = Header::default().emit().to_vec();
        for number in 0..HEADS {
            let mut content = vec![0; TRACK_BYTES];
            track::clear(&mut content, track_of(number));
            image.extend(content);
        }
        let backing = Box::new(Simulated::new(image));
        let volume = Volume::from_backing(backing, Access::Write).unwrap();
        let mut unit = Unit::new();
        unit.add_volume(volume, 4 * TRACK_BYTES, StorageOptions::default()).unwrap();
        let device =
            Device { volume: 0, first_cylinder: 0, cylinders: 1, may_write: true, is_cached: true };
        let bytes = vec![7; COPIED_BYTES_MAX];
        let mut connections: Vec<Connection> =
            (0..6).map(|_| Connection::new(device, 0, 0, false)).collect();
        let mut waiting = Vec::new();
        for (number, connection) in connections.iter_mut().enumerate() {
            for exchange in 0..5 {
                let exchange = Exchange::new(number as u16, exchange, &device);
                let mut ending = Ending::new(exchange, Kind::TransportResponse);
                ending.exchange.is_unsynced = true;
                ending.output.push_bytes(&bytes, &mut unit.volumes[0].cache).unwrap();
                unit.end(connection, ending).unwrap();
                let (_, last) = unit.volumes[0].endings.iter().last().unwrap();
                let is_kept = !last.output.is_empty();
                assert_eq!(is_kept, last.status == DeviceStatus::ENDED);
                waiting.push(is_kept);
            }
        }
        // Four of each connection, and sixteen of all.
        let expected: Vec<bool> = (0..30).map(|index| index < 20 && index % 5 < 4).collect();
        assert_eq!(waiting, expected);
        let fault = unit.volumes[0].endings.iter().last().unwrap().1.sense;
        assert_eq!(fault, Fault::Overrun.sense(0, 0));
        // They are free when the connections end.
        unit.connections = connections.into_iter().map(|one| Some(Box::new(one))).collect();
        (0..6).for_each(|number| unit.disconnect(number));
        assert_eq!((unit.copied_bytes, unit.volumes[0].endings.len()), (0, 0));
    }
}
