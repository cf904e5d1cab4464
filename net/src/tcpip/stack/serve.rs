//! What a stack sends without being asked, and when.

use super::*;

/// Segments that one connection sends before the next has its turn.
const BURST: usize = 64;

/// The shortest time between two reminders of one connection.
const REMINDER_NS: u64 = 1_000_000_000;

impl Stack {
    /// Sends what there is to send and does what is due. True if there is more to do at once.
    pub fn poll(&mut self, now: u64, link: &mut impl Link) -> bool {
        self.clock = now;
        self.receive_own(now, link);
        self.give_up_late(now, link);
        let Stack { output, counters, stalled, busy, connections, timers, has_moved, .. } = self;
        output.retry(link, counters, |to| {
            *has_moved = true;
            for index in stalled.remove(&to).unwrap_or_default() {
                let Some(connection) = connections.get_mut(index) else { continue };
                connection.waits_for = None;
                if !std::mem::replace(&mut connection.is_busy, true) {
                    busy.push_back(index);
                }
            }
        });
        while let Some((due, index)) = timers.first().copied().filter(|(due, _)| *due <= now) {
            timers.remove(&(due, index));
            if let Some(connection) = connections.get_mut(index) {
                connection.due = None;
                if !std::mem::replace(&mut connection.is_busy, true) {
                    busy.push_back(index);
                }
            }
        }
        self.ask_questioned(now, link);
        // Each once: those that have more stand in line again.
        for _ in 0..self.busy.len() {
            let Some(index) = self.busy.pop_front() else { break };
            self.serve(now, index, link);
        }
        self.has_more()
    }

    /// Returns true if there is work to do at once.
    fn has_more(&self) -> bool {
        !self.busy.is_empty() || !self.questioned.is_empty() || self.output.own_waiting() > 0
    }

    /// When [`Stack::poll`] is to be called at the latest, if nothing comes before. None: never.
    pub fn due(&self) -> Option<u64> {
        if self.has_more() {
            return Some(0);
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        timer.into_iter().chain(self.reassembly.due()).min()
    }

    /// Sends what a connection has to send, and looks after its timers and its end.
    pub(super) fn serve(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Stack { connections, engine, output, counters, room, path_mtus, options, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        connection.is_busy = false;
        if !connection.is_live {
            return;
        }
        if connection.asleep.is_some() {
            return self.serve_asleep(now, index, link);
        }
        let Some(machine) = &mut connection.machine else { return };
        if connection.is_receive_shut {
            while machine.take(|bytes| (bytes.len(), bytes.len())).is_some_and(|count| count > 0) {}
        }
        let mut has_failed = false;
        if connection.deadline.is_some_and(|deadline| deadline <= now) {
            connection.deadline = None;
            match machine.state() {
                // The reset has found no room. Whoever takes nothing is not told.
                State::Closed => {
                    counters.count(Counter::TargetFull);
                    return self.retire(index);
                }
                // Nor has the last acknowledgement: from here on the table answers.
                State::TimeWait => return self.rest(now, index),
                _ => {
                    connection.end = Some(End::TimedOut);
                    counters.count(Counter::TimedOut);
                    machine.abort();
                    has_failed = true;
                }
            }
        }
        if machine.state() == State::TimeWait {
            self.acknowledge_end(index, link);
            return self.settle(now, index, false, None);
        }
        let remote = connection.tuple.remote;
        let step = connection.keep(now);
        let Some(machine) = &mut connection.machine else { return };
        let said = [path_mtus.get(now, remote.ip()), output.routes.mtu_to(remote.ip())];
        let path_mtu = said.into_iter().flatten().min().filter(|mtu| *mtu < options.mtu);
        machine.set_path_mtu(path_mtu);
        match step {
            Step::Probe => {
                let mut frame = packet::bare(connection.tuple.local, remote, machine.question());
                let offload = packet::leave_checksum(&mut frame);
                counters.count(Counter::ProbesSent);
                output.answer(link, counters, remote.ip(), offload, &mut frame);
            }
            Step::GiveUp => {
                connection.end = Some(End::TimedOut);
                counters.count(Counter::TimedOut);
                machine.abort();
                has_failed = true;
            }
            Step::Nothing => {}
        }
        let mut way = Way { link, output, counters, room };
        let mut sent = Ok(true);
        let mut reminder = None;
        for _ in 0..BURST {
            sent = machine.send_one(engine, now, &mut way);
            if sent != Ok(true) {
                break;
            }
        }
        let unacknowledged = machine.unacknowledged();
        if sent == Ok(false)
            && unacknowledged != Unacknowledged::Nothing
            && !way.output.is_full(connection.tuple.remote.ip())
            && machine.due(engine, now) == Ok(None)
        {
            // As often as a timer would at the earliest: a reminder that does not help must not be repeated at once.
            let due = connection.reminded.map_or(now, |last| last + REMINDER_NS);
            if due > now {
                reminder = Some(due);
            } else {
                connection.reminded = Some(now);
                let tuple = connection.tuple;
                if unacknowledged == Unacknowledged::End {
                    let last = machine.known.sent;
                    let end = Bare {
                        flags: FIN | ACK,
                        sequence: last.next.wrapping_sub(1),
                        acknowledgement: machine.expected(),
                        window: last.window,
                    };
                    reminder = Some(now + REMINDER_NS);
                    self.send_bare(tuple, end, link);
                } else {
                    for reminder in machine.reminders(tuple.local, tuple.remote) {
                        let received = machine.receive(engine, now, &reminder, None, &mut way);
                        sent = sent.and(received.map(|()| true));
                    }
                }
            }
        }
        // Its reset may have no room: the program is told before it has gone.
        if has_failed {
            self.note_change(index);
        }
        match sent {
            Err(Broken) => self.break_down(index),
            Ok(has_more) => self.settle(now, index, has_more, reminder),
        }
    }

    /// Acknowledges the end of the other side's stream, after our own has ended, if the target has room. From then on the table of
    /// TIME-WAIT answers.
    ///
    /// smoltcp would send the same acknowledgement. But ten seconds after the end has come, and before it sends anything, it
    /// throws away the bytes that no program has read, even if the target had no room for the acknowledgement until then.
    fn acknowledge_end(&mut self, index: u32, link: &mut impl Link) {
        let Stack { connections, output, counters, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let Tuple { local, remote } = connection.tuple;
        let Some(machine) = &mut connection.machine else { return };
        let acknowledgement = machine.expected();
        if machine.known.sent.acknowledged == acknowledgement || output.is_full(remote.ip()) {
            return;
        }
        machine.known.sent.acknowledged = acknowledgement;
        let sequence = machine.known.sent.next;
        let window = machine.window_to_say();
        let bare = Bare { flags: ACK, sequence, acknowledgement, window };
        let mut frame = packet::bare(local, remote, bare);
        let offload = packet::leave_checksum(&mut frame);
        output.send(link, counters, remote.ip(), offload, &mut frame);
    }

    /// Asks the other side of a connection that sleeps, which has no timers but for this.
    fn serve_asleep(&mut self, now: u64, index: u32, link: &mut impl Link) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let (tuple, step) = (connection.tuple, connection.keep(now));
        let Some(known) = &connection.asleep else { return };
        match step {
            Step::Probe => {
                let question = known.question();
                self.counters.count(Counter::ProbesSent);
                self.send_bare(tuple, question, link);
            }
            Step::GiveUp => {
                let reset = known.reset();
                connection.end = Some(End::TimedOut);
                self.counters.count(Counter::TimedOut);
                self.send_bare(tuple, reset, link);
                return self.retire(index);
            }
            Step::Nothing => {}
        }
        let due = self.connections.get_mut(index).and_then(|connection| connection.keep_due());
        self.set_timer(index, due);
    }

    /// Takes note of where a connection stands after it was served.
    pub(super) fn settle(&mut self, now: u64, index: u32, has_more: bool, reminder: Option<u64>) {
        self.show_later(index);
        let Stack { connections, engine, output, stalled, options, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        let remote = connection.tuple.remote.ip();
        let is_orphan = connection.is_orphan();
        let Some(machine) = &mut connection.machine else { return };
        let state = machine.state();
        let full = output.full_on_the_way_to(remote);
        if let Some(target) = full {
            // The way may be another than before.
            let before = connection.waits_for.replace(target).filter(|before| *before != target);
            if let Some(others) = before.and_then(|before| stalled.get_mut(&before)) {
                others.remove(&index);
            }
            stalled.entry(target).or_default().insert(index);
        } else if has_more {
            return self.make_busy(index);
        }
        match state {
            State::Closed if machine.socket().remote_endpoint().is_none() => {
                return self.retire(index);
            }
            State::TimeWait if machine.known.sent.acknowledged == machine.expected() => {
                return self.rest(now, index);
            }
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
            _ if machine.socket().send_queue() > 0 => Some(options.silence_max),
            _ => None,
        };
        connection.deadline = match (limit, connection.deadline) {
            (Some(_), Some(deadline)) => Some(deadline),
            (Some(limit), None) => Some(now.saturating_add(nanoseconds(limit))),
            (None, _) => None,
        };
        let Ok(due) = machine.due(engine, now) else { return self.break_down(index) };
        // What is due at once and was not sent waits for room.
        let due = due.filter(|due| *due > now || full.is_none());
        let probe = connection.keep_due();
        let due = due.into_iter().chain(connection.deadline).chain(reminder).min();
        let due = if due.is_none() { self.rest_if_idle(now, index) } else { due };
        self.set_timer(index, due.into_iter().chain(probe).min());
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
        let Some(due) = due else { return };
        if connection.due.is_some_and(|before| before <= due) {
            return;
        }
        if let Some(before) = connection.due.replace(due) {
            self.timers.remove(&(before, index));
        }
        self.timers.insert((due, index));
    }

    pub(super) fn clear_timer(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if let Some(before) = connection.due.take() {
            self.timers.remove(&(before, index));
        }
    }
}
