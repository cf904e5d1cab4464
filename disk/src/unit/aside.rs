//! Exchanges that wait for a track that is being read, or let others have a turn.
//!
//! What an exchange needs to run again is kept with it, within limits; a ticket stands for it with the reads.

use super::transport::tccb_bytes;
use super::*;
use crate::ckd::backing::is_refusal;

/// Direct reads of a volume that a pass takes at most. The first of a burst go to their guests, who start the next ones, while the rest
/// is taken.
const READS_PER_POLL_MAX: usize = 8;

/// Exchanges that have let others have a turn of which a pass goes on with so many.
const YIELDED_PER_POLL_MAX: usize = 8;

/// How often a command, or an operation in transport mode, runs again because a track was not there. Then it reads by calls that
/// wait: what it needs at once may be more than the cache has room for.
const TURNS_MAX: u32 = 64;

/// Bytes of data of the exchanges that are put aside, at most: of a connection, and of all. Others read by calls that wait, or end busy. A chain
/// that lets others have a turn keeps its own units beyond them.
const ASIDE_BYTES_MAX: usize = 16 << 20;
const ALL_ASIDE_BYTES_MAX: usize = 64 << 20;

/// Units of a chain that wait while a command of it is put aside: the channel sends two groups of commands at most before it waits for a
/// response, data with each, and a cancel.
const WAITING_UNITS_MAX: usize = 4 * PACING + 1;

/// What an exchange does when the track is there that it waits for.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) serial: u64,
    /// The command, or the transport command.
    head: Head,
    /// Its data; or the TCCB, with the output data behind.
    bytes: Vec<u8>,
    /// Units of the chain that have arrived since.
    units: VecDeque<(Head, Vec<u8>)>,
    /// Slots that the command had pinned: they stay until it has run again.
    pub(super) held: Vec<Slot>,
}

impl Mounted {
    /// Takes over what a direct read has brought. None if it is of no use; then those who wait for it may read the track as they
    /// can. Otherwise the slot, unless the read has to be done again.
    fn take_over(&mut self, landed: &Landed) -> Option<Option<Slot>> {
        let Mounted { cache, flights, .. } = self;
        if landed.is_stale {
            return Some(None);
        }
        let start = *landed.data.as_ref().ok()?;
        let data = flights.as_ref()?.data(landed.place).get(start..start + landed.part.len())?;
        let address = track_of(landed.track);
        let uniform = if landed.part.len() == TRACK_BYTES {
            // A damaged track is read once more, to be sure.
            track::check(data, address).ok()?.uniform
        } else {
            let uniform = cache.uniform_of(landed.track);
            let is_true = |one: &Uniform| one.is_true_of(address, landed.part.start, data);
            if !uniform.as_ref().is_some_and(is_true) {
                // Not as it was seen last: all of it is read next.
                cache.forget(landed.track);
                return Some(None);
            }
            uniform
        };
        cache.fill(landed.track, landed.part.start, data, uniform).ok().map(Some)
    }
}

impl Aside {
    /// Whether it is an operation of transport mode, which has all of its data.
    pub(super) fn is_operation(&self) -> bool {
        self.head.kind == Kind::TransportCommand
    }

    /// Keeps a unit of the chain that has arrived.
    pub(super) fn keep(&mut self, head: Head, body: &[u8]) -> Result<(), Broken> {
        if self.units.len() >= WAITING_UNITS_MAX {
            return Err(Broken::Rules);
        }
        self.units.push_back((head, body.to_vec()));
        Ok(())
    }
}

impl Exchange {
    /// Bytes of data that are kept while it is put aside, without output data that have room of their own.
    fn aside_bytes(&self) -> usize {
        let Some(aside) = &self.aside else { return 0 };
        let own_bytes = if self.room_bytes > 0 { 0 } else { aside.bytes.len() };
        own_bytes + aside.units.iter().map(|(_, body)| body.len()).sum::<usize>()
    }
}

impl Unit {
    /// Takes direct reads that are over, and goes on with what waits for them.
    pub(super) fn take_reads(&mut self, volume: usize) -> bool {
        let mut found = false;
        for _ in 0..READS_PER_POLL_MAX {
            let mounted = &mut self.volumes[volume];
            let Some(landed) = mounted.flights.as_mut().and_then(Flights::land) else { break };
            found = true;
            // What nobody wants any more is not to stay in the cache of a device that has none.
            let is_wanted = !landed.is_passing
                || !landed.waiters.is_empty()
                || self.is_asked(volume, landed.track);
            let mounted = &mut self.volumes[volume];
            let taken = if is_wanted { mounted.take_over(&landed) } else { Some(None) };
            let must_block = taken.is_none();
            let slot = taken.flatten();
            // It stays until those who wait for it have used it.
            slot.into_iter().for_each(|slot| mounted.cache.pin(slot));
            // Who waits for the place comes first: who goes on now could want it for its next track, again and again.
            self.feed_starved(volume);
            for ticket in landed.waiters {
                self.resume(ticket, must_block);
            }
            slot.into_iter().for_each(|slot| self.volumes[volume].cache.unpin(slot));
            if let Some(error) = landed.data.as_ref().err().filter(|error| is_refusal(error)) {
                self.give_up_direct(volume, error);
                break;
            }
            self.feed_starved(volume);
        }
        found
    }

    /// Whether an exchange that goes on has asked for a track.
    fn is_asked(&self, volume: usize, track: u32) -> bool {
        let connections = self.connections.iter().flatten();
        let mut exchanges = connections
            .filter(|connection| connection.device.volume == volume)
            .flat_map(|connection| &connection.exchanges);
        exchanges.any(|exchange| exchange.asked.contains(&track))
    }

    /// Goes on with exchanges that have let others have a turn. Returns whether there was any.
    pub(super) fn resume_yielded(&mut self) -> bool {
        let count = self.yielded.len().min(YIELDED_PER_POLL_MAX);
        for ticket in self.yielded.drain(..count).collect::<Vec<_>>() {
            self.resume(ticket, false);
        }
        count > 0
    }

    /// Goes on with what waits for a place, while there is one.
    pub(super) fn feed_starved(&mut self, volume: usize) {
        for _ in 0..DIRECT_READS_MAX {
            let flights = self.volumes[volume].flights.as_mut();
            let Some(ticket) = flights.and_then(Flights::next_starved) else { break };
            self.resume(ticket, false);
            if let Some(flights) = &mut self.volumes[volume].flights {
                flights.end_turn();
            }
        }
    }

    /// The kernel does not do what it did when the volume was mounted: tracks are read by calls that wait from now on.
    pub(super) fn give_up_direct(&mut self, volume: usize, why: &io::Error) {
        self.refuse_direct(volume, format!("the kernel refuses a direct read: {why}"));
        let flights = self.volumes[volume].flights.take();
        for ticket in flights.map(Flights::into_waiters).unwrap_or_default() {
            self.resume(ticket, true);
        }
    }

    /// Goes on with an exchange that was put aside, if it is still there.
    fn resume(&mut self, ticket: Ticket, must_block: bool) {
        let place = usize::from(ticket.connection);
        let connection = self.connections.get_mut(place).and_then(Option::take);
        let Some(mut connection) = connection else { return };
        let link = connection.link;
        let done = self.resume_exchange(&mut connection, ticket, must_block);
        self.connections[place] = Some(connection);
        if done.is_err() {
            self.drop_link(link);
        }
    }

    pub(super) fn resume_exchange(
        &mut self,
        connection: &mut Connection,
        ticket: Ticket,
        must_block: bool,
    ) -> Result<(), Broken> {
        let is_it = |exchange: &Exchange| {
            exchange.aside.as_ref().is_some_and(|aside| aside.serial == ticket.serial)
        };
        let Some(index) = connection.exchanges.iter().position(is_it) else { return Ok(()) };
        let mut exchange = connection.exchanges.swap_remove(index);
        exchange.disconnect_time.end(self.clock);
        self.give_back_aside(connection, &exchange);
        let aside = *exchange.aside.take().expect("seen above");
        let Aside { head, bytes, mut units, held, .. } = aside;
        exchange.must_block = must_block || exchange.turns >= TURNS_MAX;
        let done = if head.kind == Kind::TransportCommand {
            let (tccb, data) = bytes.split_at(tccb_bytes(head));
            let mut ending = Ending::new(exchange, Kind::TransportResponse);
            match self.operate(connection, head, &mut ending, tccb, data) {
                None => self.end(connection, ending),
                Some((awaited, exchange, held)) => {
                    self.put_aside(connection, exchange, awaited, head, bytes, held);
                    Ok(())
                }
            }
        } else {
            connection.exchanges.push(exchange);
            let last = connection.exchanges.len() - 1;
            self.run(connection, last, head, &bytes)
        };
        let cache = &mut self.volumes[connection.device.volume].cache;
        held.into_iter().for_each(|slot| cache.unpin(slot));
        done?;
        while let Some((head, body)) = units.pop_front() {
            let mut exchanges = connection.exchanges.iter_mut();
            let found = exchanges.find(|one| one.number == head.exchange);
            if let Some(aside) = found.and_then(|one| one.aside.as_mut()) {
                // It waits again, and they with it. None is tried by itself: each would find the limits reached, and have the exchange
                // run once more.
                units.push_front((head, body));
                let bytes: usize = units.iter().map(|(_, body)| body.len()).sum();
                aside.units.append(&mut units);
                connection.aside_bytes += bytes;
                self.aside_bytes += bytes;
                return Ok(());
            }
            match head.kind {
                Kind::Command => self.command(connection, head)?,
                Kind::Cancel => self.cancel(connection, head)?,
                _ => self.command_data(connection, head, &body)?,
            }
        }
        Ok(())
    }

    /// The channel wants an exchange to end.
    pub(super) fn cancel(&mut self, connection: &mut Connection, head: Head) -> Result<(), Broken> {
        let found = connection.exchanges.iter().position(|one| one.number == head.exchange);
        let Some(index) = found else {
            // Its program waits no longer for its device, if it did.
            let reservations = &mut self.volumes[connection.device.volume].reservations;
            reservations.take(head.connection, head.exchange);
            return Ok(());
        };
        if head.code == cancel::IN_ORDER
            && let Some(aside) = &mut connection.exchanges[index].aside
        {
            return aside.keep(head, &[]);
        }
        let exchange = connection.exchanges.swap_remove(index);
        self.give_back_aside(connection, &exchange);
        self.forget_ticket(connection, &exchange);
        self.forget_transfer(connection, &exchange);
        self.end(connection, Ending::new(exchange, Kind::Status))
    }

    /// Puts an exchange aside until a track is there. What the command had pinned stays until it runs again.
    pub(super) fn put_aside(
        &mut self,
        connection: &mut Connection,
        mut exchange: Exchange,
        awaited: Awaited,
        head: Head,
        bytes: Vec<u8>,
        held: Vec<Slot>,
    ) {
        self.serial += 1;
        self.counters.asides += 1;
        exchange.turns += u32::from(awaited != Awaited::Turn);
        exchange.yields += u32::from(awaited == Awaited::Turn);
        let serial = self.serial;
        let ticket = Ticket { connection: head.connection, serial };
        if awaited == Awaited::Turn {
            self.yielded.push_back(ticket);
        } else {
            let flights = self.volumes[connection.device.volume].flights.as_mut();
            flights.expect("no read is waited for without").wait(awaited, ticket);
        }
        let aside = Aside { serial, head, bytes, units: VecDeque::new(), held };
        exchange.aside = Some(Box::new(aside));
        connection.aside_bytes += exchange.aside_bytes();
        self.aside_bytes += exchange.aside_bytes();
        connection.exchanges.push(exchange);
    }

    /// An exchange waits no longer, whatever becomes of it.
    pub(super) fn give_back_aside(&mut self, connection: &mut Connection, exchange: &Exchange) {
        connection.aside_bytes -= exchange.aside_bytes();
        self.aside_bytes -= exchange.aside_bytes();
    }

    /// An exchange that is over waits for no track any more.
    pub(super) fn forget_ticket(&mut self, connection: &Connection, exchange: &Exchange) {
        let Some(aside) = &exchange.aside else { return };
        self.yielded.retain(|ticket| ticket.serial != aside.serial);
        if let Some(flights) = &mut self.volumes[connection.device.volume].flights {
            flights.forget(aside.serial);
        }
    }

    /// Whether an exchange with so many bytes of data may not be put aside.
    pub(super) fn is_aside_full(&self, connection: &Connection, bytes: usize) -> bool {
        connection.aside_bytes + bytes > ASIDE_BYTES_MAX
            || self.aside_bytes + bytes > ALL_ASIDE_BYTES_MAX
    }
}
