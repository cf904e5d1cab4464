//! Taking in what the other side has sent. Everything it says is checked here.

use super::complete::completion_of;
use super::{
    Arrived, COMPLETED_MAX, Done, Kept, MESSAGES_MAX, PARKED_BYTES_MAX, PLAIN, Path, QUEUES, URGENT,
};
use crate::iucv::event::{Audit, Completion, Pending};
use crate::iucv::outgoing::State;
use crate::iucv::record::{ID_BYTES, MessageHead, MessageId, PARAMETER_BYTES, Record};
use crate::path::{Body, Parked, Severed};
use crate::queue::Violation;

/// Messages in pages up to this length are copied out before they are looked at; longer ones are
/// received straight from the page.
const COPIED_BYTES_MAX: usize = 4096;

/// Records of the urgent queue that are taken at a time. No more can be there by right: something about
/// each message of either side.
const RECORDS_PER_POLL_MAX: usize = 2 * MESSAGES_MAX as usize;

impl Path {
    /// Takes in everything of the urgent queue: what is said about messages is done, messages are parked
    /// but for the last.
    pub fn poll(&mut self) {
        self.poll_while(|_| true);
    }

    pub(super) fn poll_while(&mut self, wanted: impl Fn(&Path) -> bool) {
        // Not for ever: the other side could say something as fast as we take it in.
        for _ in 0..RECORDS_PER_POLL_MAX {
            if !self.is_urgent_ready() || !wanted(self) || !self.advance_urgent() {
                return;
            }
        }
    }

    /// Whether there is something in the urgent queue to look at.
    #[inline]
    pub fn is_urgent_ready(&self) -> bool {
        !self.is_urgent_over && self.receivers[URGENT].is_ready()
    }

    /// Takes the next of the urgent queue. False if there is none.
    pub(super) fn advance_urgent(&mut self) -> bool {
        if let Some(front) = self.fronts[URGENT].take() {
            self.park(URGENT, front);
        }
        if let Some(done) = self.front_done.take() {
            self.park_done(done);
        }
        match self.pick(URGENT) {
            None => return false,
            Some((Record::Message(head), body)) => {
                self.fronts[URGENT] = self.arrive(URGENT, head, body);
            }
            Some((record, body)) => {
                if let Err(violation) = self.obey(record, body) {
                    self.accuse(URGENT, violation);
                }
            }
        }
        true
    }

    /// Takes the next of the plain queue; what stood in front of it is parked. False if there is none, or
    /// too much is parked already.
    pub(super) fn advance_plain(&mut self) -> bool {
        if self.parked_bytes >= PARKED_BYTES_MAX || !self.receivers[PLAIN].is_ready() {
            return false;
        }
        if let Some(front) = self.fronts[PLAIN].take() {
            self.park(PLAIN, front);
        }
        self.pick_plain()
    }

    #[inline]
    pub(super) fn pick_plain(&mut self) -> bool {
        loop {
            match self.pick(PLAIN) {
                Some((Record::Message(head), body)) => {
                    self.fronts[PLAIN] = self.arrive(PLAIN, head, body);
                    if self.purged_ahead.is_empty() || !self.is_purged_ahead(head.id) {
                        return true;
                    }
                    if self.forget(head.id) {
                        self.ended.push_back(Record::Purged(head.id));
                    }
                }
                Some(_) => unreachable!("the plain queue has messages alone"),
                None => {
                    // What was purged lay in the queue by then: it had been received before.
                    self.purged_ahead.clear();
                    return false;
                }
            }
        }
    }

    /// Picks the next from a queue, and takes its head apart.
    #[inline]
    pub(super) fn pick(&mut self, queue: usize) -> Option<(Record, Body)> {
        if self.is_final {
            return None;
        }
        let receiver = &mut self.receivers[queue];
        let picked = match receiver.pick(COPIED_BYTES_MAX) {
            Ok(picked) => picked?,
            Err(severed) => {
                self.end(queue, severed);
                return None;
            }
        };
        let opened = Body::open(receiver, picked, |head| Record::parse(queue, head));
        let (record, body) = opened.unwrap_or((Err(Violation::Record), Body::none()));
        match record {
            Ok(record) if record.may_have_body() || body.bytes() == 0 => Some((record, body)),
            refused => {
                let violation = refused.err().unwrap_or(Violation::Size);
                body.release(receiver);
                self.accuse(queue, violation);
                None
            }
        }
    }

    /// A message has come.
    pub(super) fn arrive(
        &mut self,
        queue: usize,
        head: MessageHead,
        body: Body,
    ) -> Option<Arrived> {
        match self.admit(queue, head, body.bytes()) {
            Some(pending) => Some(Arrived { pending, body, told: false }),
            None => {
                body.release(&mut self.receivers[queue]);
                None
            }
        }
    }

    /// Checks what the head of a message says.
    #[inline]
    pub(super) fn admit(
        &mut self,
        queue: usize,
        head: MessageHead,
        bytes: usize,
    ) -> Option<Pending> {
        let MessageHead { class, id, answer, parameters } = head;
        let is_free = !self.arrived.has_place(id)
            && self.has_room_for(id, self.arrived.len() + self.fronts.iter().flatten().count());
        let fits = !parameters || bytes == PARAMETER_BYTES && self.limits.parameters_for_us;
        // In front there can be one of the other queue only.
        let in_front = self.fronts[QUEUES - 1 - queue].as_ref();
        if !is_free || !fits || in_front.is_some_and(|front| front.pending.id.place() == id.place())
        {
            self.accuse(queue, Violation::Record);
            return None;
        }
        Some(Pending { id, class, bytes, priority: queue == URGENT, answer, parameters })
    }

    /// As [`Path::admit`], for one that nothing stands beside.
    #[inline(always)]
    pub(super) fn admit_alone(&mut self, head: MessageHead, bytes: usize) -> Option<Pending> {
        let MessageHead { class, id, answer, parameters } = head;
        if parameters || !self.has_room_for(id, 0) {
            return self.admit(PLAIN, head, bytes);
        }
        Some(Pending { id, class, bytes, priority: false, answer, parameters })
    }

    /// Whether the other side may have one message more outstanding, besides those `in_sight`, and this is not
    /// the place of one that was received.
    #[inline(always)]
    fn has_room_for(&self, id: MessageId, in_sight: usize) -> bool {
        // What we have not said yet counts: there is never more to say than there are places.
        let outstanding =
            in_sight + self.awaiting_count + self.completed.len() / ID_BYTES + self.ended.len();
        id.place() < self.limits.theirs as usize
            && outstanding < self.limits.theirs as usize
            && self.awaiting.get(id.place()).is_none_or(Option::is_none)
    }

    /// Does what the other side says about messages.
    pub(super) fn obey(&mut self, record: Record, body: Body) -> Result<(), Violation> {
        match record {
            Record::Message(_) => unreachable!("handled by the caller"),
            Record::Completed => {
                let spot = body.spot().ok_or(Violation::Record)?;
                let mut ids = [0; COMPLETED_MAX * ID_BYTES];
                let said = self.receivers[URGENT].message(spot).body;
                let ids = ids.get_mut(..said.len()).ok_or(Violation::Size)?;
                ids.copy_from_slice(said);
                let (ids, rest) = ids.as_chunks::<ID_BYTES>();
                if !rest.is_empty() {
                    return Err(Violation::Size);
                }
                for id in ids {
                    self.complete_one_way(MessageId(u32::from_le_bytes(*id)))?;
                }
                Ok(())
            }
            Record::Reply { id, parameters, priority } => {
                let bytes = body.bytes();
                let entry = *self.table.get_mut(id).ok_or(Violation::Record)?;
                let most = self.table.answer_max(&entry).ok_or(Violation::Record)?;
                if bytes as u64 > u64::from(most) || parameters && bytes != PARAMETER_BYTES {
                    return Err(Violation::Size);
                }
                match entry.state {
                    State::Sent => {
                        self.table.get_mut(id).expect("found just now").state = State::Complete;
                        let completion = Completion {
                            priority,
                            answer: Some(bytes),
                            parameters,
                            ..completion_of(&entry, Audit::default())
                        };
                        self.front_done = Some(Done { completion, body, told: false });
                        Ok(())
                    }
                    _ => {
                        body.release(&mut self.receivers[URGENT]);
                        self.table.end_purged(id)
                    }
                }
            }
            Record::Rejected(id) => {
                let entry = self.table.get_mut(id).ok_or(Violation::Record)?;
                match entry.state {
                    State::Sent => {
                        entry.state = State::Complete;
                        let entry = *entry;
                        let completion = completion_of(&entry, Audit::REJECTED);
                        self.keep_done(completion, Parked::none(), false);
                        Ok(())
                    }
                    _ => self.table.end_purged(id),
                }
            }
            Record::Purge(id) => {
                // It was sent before it was purged, so it is there, or was received and that was said.
                while !self.forget(id) {
                    if !self.advance_plain() {
                        self.look_out_for(id);
                        return Ok(());
                    }
                }
                self.ended.push_back(Record::Purged(id));
                Ok(())
            }
            Record::Purged(id) => {
                let entry = self.table.get_mut(id).ok_or(Violation::Record)?;
                if entry.state != State::Purged {
                    return Err(Violation::Record);
                }
                self.table.close(id);
                Ok(())
            }
            Record::Quiesce => {
                self.is_quiet = true;
                Ok(())
            }
            Record::Resume => {
                self.is_quiet = false;
                Ok(())
            }
        }
    }

    /// The other side has purged a message that was not found: it was received, or lies behind so much that it
    /// was not come to.
    fn look_out_for(&mut self, id: MessageId) {
        // A place beyond the limit is nobody's, so there are never more than places.
        let may_come = id.place() < self.limits.theirs as usize;
        if may_come && self.receivers[PLAIN].is_ready() && !self.is_plain_over {
            self.purged_ahead.insert(id.place(), id);
        }
    }

    /// Whether a message that has just come was purged before. One that was purged at the same place had been
    /// received then, or its place would not have been given away.
    fn is_purged_ahead(&mut self, id: MessageId) -> bool {
        self.purged_ahead.remove(&id.place()) == Some(id)
    }

    /// Takes a message out of its queue's way.
    pub(super) fn park(&mut self, queue: usize, arrived: Arrived) {
        let Arrived { pending, body, told } = arrived;
        let body = body.park(&mut self.receivers[queue]);
        self.parked_bytes += body.bytes();
        let Pending { id, class, priority, .. } = pending;
        self.arrived.add(id, class, priority, told, Kept { of: pending, body });
    }

    /// The other side breaks the rules.
    #[cold]
    pub(super) fn accuse(&mut self, queue: usize, violation: Violation) {
        let severed = self.receivers[queue].accuse(violation);
        self.end(queue, severed);
        self.is_final = true;
        self.is_urgent_over = true;
        self.is_plain_over = true;
        self.fail_outstanding();
    }

    /// A queue has ended, and all that came over it has been taken.
    #[cold]
    pub(super) fn end(&mut self, queue: usize, severed: Severed) {
        self.severed.get_or_insert(severed);
        if queue == URGENT {
            // No reply comes any more.
            self.is_urgent_over = true;
            self.fail_outstanding();
        } else {
            self.is_plain_over = true;
        }
    }
}
