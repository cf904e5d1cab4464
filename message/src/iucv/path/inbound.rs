//! The inbound half: polls what the other side has sent. Every record is checked here.

use super::{BUFFERED_BYTES_MAX, PLAIN, PRIORITY_BYTES_MAX, Path, URGENT};
use crate::body::BodyReader;
use crate::iucv::event::{Audit, Completion, PendingMessage};
use crate::iucv::outgoing::{Entry, State};
use crate::iucv::record::{ID_BYTES, IDS_MAX, MessageHead, MessageId, PARAMETER_BYTES, Record};
use fabric::path::{Lack, Reason, Severed};
use fabric::queue::Violation;

/// Messages in pages up to this length are copied out before they are parsed; longer ones are received
/// straight from the page.
const COPIED_BYTES_MAX: usize = 4096;

/// Records that a verb polls from each queue at most, and bytes that it takes into memory of our own: the
/// other side can send as fast as we poll. The path stays ready while there is more.
const RECORDS_PER_POLL_MAX: usize = 256;
const TAKEN_BYTES_MAX: usize = 1 << 20;

impl Path {
    /// Polls the urgent queue: control records are applied, messages are kept but for the last.
    pub fn poll(&mut self) {
        self.poll_while(|_| true);
    }

    #[inline]
    pub(super) fn poll_while(&mut self, wanted: impl Fn(&Path) -> bool) {
        self.advance_while(|path| path.is_urgent_ready() && wanted(path) && path.advance_urgent());
        // Those that were purged wait to be forgotten.
        self.advance_while(|path| !path.purged_ahead.is_empty() && path.advance_plain());
    }

    /// Repeats `step` while it returns true, but a bounded number of times.
    #[inline]
    pub(super) fn advance_while(&mut self, mut step: impl FnMut(&mut Path) -> bool) {
        let buffered_bytes_max = self.buffered_bytes() + TAKEN_BYTES_MAX;
        for _ in 0..RECORDS_PER_POLL_MAX {
            if !step(self) || self.buffered_bytes() > buffered_bytes_max {
                return;
            }
        }
    }

    /// Whether there is something in the urgent queue that can be polled.
    #[inline]
    pub fn is_urgent_ready(&self) -> bool {
        self.is_queue_ready(URGENT)
    }

    /// Whether there is something in a queue that can be polled. The plain queue does not count while too much
    /// is kept and a message stands in front: its source has that much waiting for us to receive.
    #[inline]
    pub(super) fn is_queue_ready(&self, queue: usize) -> bool {
        !self.is_over[queue]
            && self.receivers[queue].is_ready()
            && (queue == URGENT
                || self.pending.front(queue).is_none()
                || self.buffered_bytes() < BUFFERED_BYTES_MAX)
    }

    /// Bytes in memory of our own of what waits.
    #[inline]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.pending.buffered_bytes() + self.complete.buffered_bytes()
    }

    /// Takes the next of the urgent queue. False if there was nothing.
    fn advance_urgent(&mut self) -> bool {
        self.pending.buffer_front(URGENT, &mut self.receivers);
        self.complete.buffer_front(URGENT, &mut self.receivers);
        if self.pending.buffered_bytes() > PRIORITY_BYTES_MAX {
            self.fail(Reason::Lacking(Lack::Memory));
        }
        let done = match self.poll_queue(URGENT) {
            Some((Record::Message(head), body)) => self.arrive(URGENT, head, body),
            Some((record, body)) => self.apply_control(record, body),
            None => return false,
        };
        if let Err(violation) = done {
            self.fail(violation.into());
        }
        true
    }

    /// Takes the next of the plain queue; what stood in front of it is kept. False if there is none, or
    /// too much is kept already.
    pub(super) fn advance_plain(&mut self) -> bool {
        if self.pending.front(PLAIN).is_some() {
            if !self.is_queue_ready(PLAIN) {
                return false;
            }
            self.pending.buffer_front(PLAIN, &mut self.receivers);
        }
        if let Some((record, body)) = self.poll_queue(PLAIN) {
            let Record::Message(head) = record else { unreachable!("the queue has nothing else") };
            if let Err(violation) = self.arrive(PLAIN, head, body) {
                self.fail(violation.into());
                return false;
            }
            // One that was purged at the same index had been received then, or its index would not have been
            // given away.
            if !self.purged_ahead.is_empty()
                && self.purged_ahead.remove(&head.id.index()) == Some(head.id)
            {
                self.forget(head.id);
                self.ended.push_back(Record::Purged(head.id));
            }
            return true;
        }
        if !self.is_queue_ready(PLAIN) {
            // What was purged lay in the queue by then: it had been received before.
            self.purged_ahead.clear();
        }
        false
    }

    /// Polls the next from a queue, and takes its head apart.
    #[inline]
    fn poll_queue(&mut self, queue: usize) -> Option<(Record, BodyReader)> {
        if self.is_final {
            return None;
        }
        let receiver = &mut self.receivers[queue];
        let polled = match receiver.poll(COPIED_BYTES_MAX) {
            Ok(polled) => polled?,
            Err(severed) => {
                self.end(queue, severed);
                return None;
            }
        };
        let (record, body) = BodyReader::open(receiver, polled, |head| Record::parse(queue, head));
        match record {
            Ok(record) if record.may_have_body() || body.left() == 0 => Some((record, body)),
            refused => {
                body.release(receiver);
                self.fail(refused.err().unwrap_or(Violation::Size).into());
                None
            }
        }
    }

    /// A message has come.
    #[inline]
    fn arrive(
        &mut self,
        queue: usize,
        head: MessageHead,
        body: BodyReader,
    ) -> Result<(), Violation> {
        let Some(of) = self.admit(queue, head, body.left()) else {
            body.release(&mut self.receivers[queue]);
            return Err(Violation::Record);
        };
        self.pending.put_in_front(of, body);
        Ok(())
    }

    /// The message that a head announces, if the limits and the identity allow it.
    fn admit(&self, queue: usize, head: MessageHead, bytes: usize) -> Option<PendingMessage> {
        let is_taken = self.pending.has_index(head.id);
        self.admit_beside(self.pending.len(), queue, head, bytes).filter(|_| !is_taken)
    }

    /// The message that a head announces, if the limits allow it beside so many others that wait. In a stream
    /// there are none, and to find out that none has its index would cost as much as all the rest.
    #[inline(always)]
    pub(super) fn admit_beside(
        &self,
        waiting: usize,
        queue: usize,
        head: MessageHead,
        bytes: usize,
    ) -> Option<PendingMessage> {
        let MessageHead { class, id, reply_bytes_max, parameters } = head;
        let (theirs, priority) = (self.limits.theirs as usize, queue == URGENT);
        // Control records that we have not sent count: there are never more of them than indexes.
        let unsent = self.completed.len() / ID_BYTES + self.ended.len();
        let is_free = id.index() < theirs
            && waiting + self.awaiting_count + unsent < theirs
            && self.awaiting.get(id.index()).is_none_or(Option::is_none);
        let fits = !parameters || bytes == PARAMETER_BYTES && self.limits.parameters_for_us;
        let pending = PendingMessage { id, class, bytes, priority, reply_bytes_max, parameters };
        (is_free && fits).then_some(pending)
    }

    /// Applies a control record of the other side's: what has become of messages, purges, quiesce.
    fn apply_control(&mut self, record: Record, body: BodyReader) -> Result<(), Violation> {
        match record {
            Record::Message(_) => unreachable!("handled by the caller"),
            Record::Completed => {
                let message = body.message().ok_or(Violation::Record)?;
                let (ids, rest) = self.receivers[URGENT].message(message).body.as_chunks();
                if ids.len() > IDS_MAX || !rest.is_empty() {
                    return Err(Violation::Size);
                }
                for id in Vec::from(ids).into_iter().map(u32::from_le_bytes) {
                    if let Some(entry) = self.table.end_one_way(MessageId(id))? {
                        self.keep_completion(&entry, Audit::default());
                    }
                }
            }
            Record::Reply { id, parameters, priority } => {
                let bytes = body.left();
                let most = self.table.reply_bytes_max(id).ok_or(Violation::Record)?;
                if bytes as u64 > u64::from(most) || parameters && bytes != PARAMETER_BYTES {
                    return Err(Violation::Size);
                }
                match self.table.end(id)? {
                    Some(entry) => {
                        let reply_bytes = Some(bytes);
                        let plain = entry.completion(Audit::default());
                        let of = Completion { priority, reply_bytes, parameters, ..plain };
                        self.complete.put_in_front(of, body);
                    }
                    None => body.release(&mut self.receivers[URGENT]),
                }
            }
            Record::Rejected(id) => {
                if let Some(entry) = self.table.end(id)? {
                    self.keep_completion(&entry, Audit::REJECTED);
                }
            }
            // It was sent before it was purged, so it is there, or was received and that was acknowledged.
            Record::Purge(id) if self.forget(id) => self.ended.push_back(Record::Purged(id)),
            // An index beyond the limit is nobody's, so there are never more than indexes.
            Record::Purge(id) if id.index() < self.limits.theirs as usize => {
                self.purged_ahead.insert(id.index(), id);
            }
            Record::Purge(_) => return Err(Violation::Record),
            Record::Purged(id) => match self.table.get_mut(id) {
                Some(Entry { state: State::Purged, .. }) => self.table.close(id),
                _ => return Err(Violation::Record),
            },
            Record::Quiesce => self.is_quiet = true,
            Record::Resume => self.is_quiet = false,
        }
        Ok(())
    }

    pub(super) fn keep_completion(&mut self, entry: &Entry, audit: Audit) {
        self.complete.keep(entry.completion(audit));
    }

    /// Completes all that is outstanding: the path was severed first.
    fn fail_outstanding(&mut self) {
        for entry in self.table.end_all() {
            self.keep_completion(&entry, Audit::SEVERED);
        }
    }

    /// Nothing more is sent, and nothing more is to be had.
    pub(super) fn end_for_good(&mut self, severed: Severed) {
        self.severed.get_or_insert(severed);
        self.is_final = true;
        self.is_over = [true; _];
        self.fail_outstanding();
    }

    /// A queue has ended, and all that came over it has been taken.
    #[cold]
    fn end(&mut self, queue: usize, severed: Severed) {
        self.severed.get_or_insert(severed);
        self.is_over[queue] = true;
        if severed.is_final() {
            self.fail(severed.reason);
        } else if queue == URGENT {
            // No reply comes any more.
            self.fail_outstanding();
        }
    }
}
