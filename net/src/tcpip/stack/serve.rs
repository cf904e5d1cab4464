//! What a stack sends without being asked, and when.

use super::*;
use crate::lan::link::FrameInParts;
use crate::lan::offload::Segmentation;
use crate::tcpip::neighbours::Sender;
use crate::tcpip::output::Service;

/// Segments that one connection sends before the next has its turn.
const BURST: usize = 64;

/// Bytes of data from which on a segment is written to where the other side reads it. Less is copied in between, and goes with
/// others.
const IN_PARTS_BYTES_MIN: usize = 2048;

impl Stack {
    /// Sends what there is to send and does what is due. True if there is more to do at once.
    pub fn poll(&mut self, now: u64, link: &mut impl Link) -> bool {
        let now = now.max(self.clock);
        (self.clock, self.output.clock) = (now, now);
        self.receive_own(now, link);
        if self.shard.is_some() {
            self.take_mail(now, link);
            self.let_depart();
        }
        let now = now.max(self.clock);
        if !self.reassembly.is_empty() {
            self.give_up_late(now, link);
        }
        if !self.output.neighbours.is_empty() {
            self.poll_neighbours(now, link);
        }
        if !self.distributors.is_empty() {
            self.poll_distributors(now, link);
        }
        let Stack { output, counters, stalled, busy, connections, has_moved, .. } = self;
        output.retry(now, link, counters, |to| {
            *has_moved = true;
            for index in stalled.remove(&to).unwrap_or_default() {
                let Some(connection) = connections.get_mut(index) else { continue };
                connection.waits_for = None;
                if let Some(tcb) = &mut connection.tcb {
                    // What has waited goes now.
                    tcb.postpone(now);
                }
                if !std::mem::replace(&mut connection.is_busy, true) {
                    busy.push_back(index);
                }
            }
        });
        if self.pool.has_refused() {
            self.name_served();
        }
        let Stack { busy, connections, timers, .. } = self;
        if !self.are_timers_held {
            timers.take_due(now, |index| {
                let Some(connection) = connections.get_mut(index) else { return };
                connection.due.clear();
                if !std::mem::replace(&mut connection.is_busy, true) {
                    busy.push_back(index);
                }
            });
        }
        self.ask_questioned(now, link);
        // Each once: those that have more stand in line again.
        for _ in 0..self.busy.len() {
            let Some(index) = self.busy.pop_front() else { break };
            self.serve(now, index, link);
        }
        // What was served may have given buffers back.
        if self.pool.has_refused() {
            self.name_served();
        }
        self.has_more()
    }

    /// Names connections whose programs found no buffer to write into, and find one now. Those whose data found none offer their windows again.
    fn name_served(&mut self) {
        for (host, is_sending) in self.pool.take_served() {
            for index in self.indexes_of(host) {
                if is_sending {
                    self.note_change(index);
                    continue;
                }
                let tcb = self.connections.get_mut(index).and_then(|found| found.tcb.as_mut());
                if tcb.is_some_and(Tcb::offer_again) {
                    self.make_busy(index);
                }
            }
        }
    }

    /// Has [`Stack::poll`] send what there is to send, and take nothing for late meanwhile: for one who knows that frames have come that were not
    /// received yet.
    pub fn hold_timers(&mut self, is_held: bool) {
        self.are_timers_held = is_held;
    }

    /// Returns true if there is work to do at once.
    fn has_more(&self) -> bool {
        !self.busy.is_empty()
            || !self.questioned.is_empty()
            || self.output.own_waiting() > 0
            || self.has_mail()
    }

    /// When [`Stack::poll`] is to be called at the latest, if nothing comes before. None: never.
    pub fn due(&self) -> Option<u64> {
        if self.has_more() {
            return Some(0);
        }
        let due = [self.reassembly.due(), self.output.due(), self.output.neighbours.due()];
        let distributors = self.distributors.iter().map(Distributor::due);
        self.timers.due().into_iter().chain(due.into_iter().flatten()).chain(distributors).min()
    }

    /// Sends what a connection has to send, and looks after its timers and its end.
    pub(super) fn serve(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.is_busy = false;
        if !connection.is_live {
            return;
        }
        let answer = std::mem::take(&mut connection.answer);
        if answer != Answer::Nothing {
            self.reply(now, index, answer, link);
        }
        let Stack { connections, pool, output, counters, path_mtus, options, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let Some(tcb) = &mut connection.tcb else { return };
        if connection.is_receive_shut {
            while tcb.take(pool, |bytes| (bytes.len(), ())).is_some() {}
        }
        let mut has_failed = false;
        if connection.deadline.take_due(now) {
            match tcb.state() {
                // The reset has found no room. Whoever takes nothing is not told.
                State::Closed => {
                    counters.count(Counter::TargetFull);
                    return self.retire(index);
                }
                // Nor has the last acknowledgement: from here on the table answers.
                State::TimeWait => return self.rest(now, index),
                _ => has_failed = true,
            }
        }
        let Tuple { local, remote } = connection.tuple;
        match connection.keep(now) {
            Step::Probe => {
                let Some(tcb) = &mut connection.tcb else { return };
                let mut frame = packet::bare(local, remote, tcb.question(now));
                packet::set_service(&mut frame, tcb.service());
                let offload = packet::leave_checksum(&mut frame);
                counters.count(Counter::ProbesSent);
                output.answer(link, counters, remote.ip(), offload, &mut frame);
            }
            Step::GiveUp => has_failed = true,
            Step::Nothing => {}
        }
        let Some(tcb) = &mut connection.tcb else { return };
        if has_failed {
            connection.end =
                Some(Box::new(match output.lack_to(remote.ip(), Service::of(tcb.service())) {
                    Some(lack) => End::Lacking(lack),
                    None if output.is_unreachable(remote.ip()) => End::HostUnreachable,
                    None => End::TimedOut,
                }));
            counters.count(Counter::TimedOut);
            tcb.abort(pool);
        }
        // What waits for its target has not gone: nothing is late.
        match output.is_full(remote.ip(), Service::of(tcb.service())) {
            true => tcb.postpone(now),
            false if !self.are_timers_held => tcb.tick(now),
            false => {}
        }
        let mut limits = output.routes.limits_to(remote.ip());
        let said = path_mtus.get(now, remote.ip()).unwrap_or(usize::MAX);
        limits.mtu = limits.mtu.min(said).min(options.mtu);
        let mut has_more = true;
        for _ in 0..BURST {
            if !self.send_segment(now, index, limits, link) {
                has_more = false;
                break;
            }
        }
        // Its reset may have no room: the program is told before it has gone.
        if has_failed {
            self.note_change(index);
        }
        self.settle(now, index, has_more);
    }

    /// Sends one segment, if there is one to send, and room for it. False if not.
    pub(super) fn send_segment(
        &mut self,
        now: u64,
        index: u32,
        mut limits: Limits,
        link: &mut impl Link,
    ) -> bool {
        let Stack { connections, config, output, counters, room, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return false };
        let Tuple { local, remote } = connection.tuple;
        let Some(tcb) = &mut connection.tcb else { return false };
        if output.is_full(remote.ip(), Service::of(tcb.service())) {
            return false;
        }
        // A first segment says what we take, whatever the way takes.
        let is_first = matches!(tcb.state(), State::SynSent | State::SynReceived);
        // Anybody can ask a listener in the name of addresses that nobody has.
        let is_half_open = tcb.state() == State::SynReceived && !connection.is_held;
        let sender = if is_half_open { Sender::Stranger } else { Sender::Own };
        if is_first {
            limits.mtu = self.options.mtu;
        }
        let Some(segment) = tcb.next_segment(now, limits, config) else { return false };
        let service = tcb.service();
        packet::begin_segment(room, local, remote, &segment);
        if service != 0 {
            packet::set_service(room, service);
        }
        if segment.is_retransmission {
            counters
                .add(Counter::Resent, segment.data_bytes.div_ceil(segment.segment_bytes) as u64);
        }
        let bytes = room.len() + segment.data_bytes;
        let mut offload = packet::leave_checksum_of(room, bytes);
        if segment.data_bytes > segment.segment_bytes {
            offload.segmentation = Some(Segmentation {
                kind: if local.is_ipv4() { Kind::Tcp4 } else { Kind::Tcp6 },
                congestion: false,
                header_bytes: room.len() as u16,
                segment_bytes: segment.segment_bytes as u16,
            });
        }
        if segment.data_bytes >= IN_PARTS_BYTES_MIN {
            let write_rest = |mut target: &mut [u8]| {
                for piece in tcb.data(&segment) {
                    let (here, rest) = target.split_at_mut(piece.len());
                    here.copy_from_slice(piece);
                    target = rest;
                }
                // What another message has left in the page must not go.
                assert!(target.is_empty(), "all that is sent is there");
            };
            let rest_bytes = segment.data_bytes;
            let frame = FrameInParts { offload, start: room, rest_bytes, write_rest: &write_rest };
            output.send_in_parts(link, counters, remote.ip(), frame);
            return true;
        }
        for piece in tcb.data(&segment) {
            room.extend_from_slice(piece);
        }
        output.send(link, counters, (remote.ip(), sender), offload, room);
        true
    }

    /// Takes note of where a connection stands after it was served.
    pub(super) fn settle(&mut self, now: u64, index: u32, has_more: bool) {
        self.show_later(index);
        let Stack { connections, output, stalled, options, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let remote = connection.tuple.remote.ip();
        let is_orphan = connection.is_orphan();
        let probe = connection.keep_due();
        let Some(tcb) = &connection.tcb else { return };
        let state = tcb.state();
        let full = output.full_on_the_way_to(remote, Service::of(tcb.service()));
        if let (State::SynSent, Some(lack)) =
            (state, output.lack_to(remote, Service::of(tcb.service())))
        {
            connection.end = Some(Box::new(End::Lacking(lack)));
            return self.retire(index);
        }
        if let Some(target) = full {
            // The way may be another than before.
            let before = connection.waits_for.replace(Box::new(target));
            let before = before.map(|before| *before).filter(|before| *before != target);
            if let Some(others) = before.and_then(|before| stalled.get_mut(&before)) {
                others.remove(&index);
            }
            stalled.entry(target).or_default().insert(index);
        } else if has_more {
            return self.make_busy(index);
        }
        match state {
            State::Closed if !tcb.has_last_words() => return self.retire(index),
            State::TimeWait if !tcb.has_last_words() => return self.rest(now, index),
            _ => {}
        }
        let limit = match state {
            State::SynSent => Some(options.connect_max),
            // The reset or the last acknowledgement has not gone yet.
            State::SynReceived | State::Closed | State::TimeWait => Some(HALF_OPEN_MAX),
            State::FinWait2 if is_orphan => Some(HALF_OPEN_MAX),
            State::FinWait1 | State::Closing | State::LastAck if is_orphan => {
                Some(options.silence_max.min(HALF_OPEN_MAX))
            }
            State::FinWait1 | State::Closing | State::LastAck => Some(options.silence_max),
            _ if tcb.send_queue() > 0 => Some(options.silence_max),
            _ => None,
        };
        match limit {
            Some(limit) if !connection.deadline.is_set() => {
                connection.deadline.set(now.saturating_add(nanoseconds(limit)));
            }
            Some(_) => {}
            None => connection.deadline.clear(),
        }
        // What is due at once and was not sent waits for room.
        let due = tcb.due().filter(|due| *due > now || full.is_none());
        let due = due.into_iter().chain(connection.deadline.at()).chain(probe).min();
        self.set_timer(index, due);
    }

    pub(super) fn make_busy(&mut self, index: u32) {
        if let Some(connection) = self.connections.get_mut(index)
            && !std::mem::replace(&mut connection.is_busy, true)
        {
            self.busy.push_back(index);
        }
    }

    /// Has a connection served at this time, or before: a time that was set for it already and is earlier stays, because
    /// most are put off by each segment that comes.
    pub(super) fn set_timer(&mut self, index: u32, due: Option<u64>) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        // The end of time never comes.
        let Some(due) = due.filter(|due| *due < u64::MAX) else { return };
        if connection.due.at().is_some_and(|before| before <= due) {
            return;
        }
        connection.due.set(due);
        self.timers.set(index, due);
    }

    pub(super) fn clear_timer(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.due.is_set() {
            self.timers.clear(index);
        }
        connection.due.clear();
    }
}
