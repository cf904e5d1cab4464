//! The life of a path: control records, quiesce, sleep and wake-up, trim, the end.

use std::os::fd::BorrowedFd;

use os::doorbell::Listen;

use super::{PLAIN, Path, QUEUES, URGENT, gauge};
use crate::iucv::event::Interrupt;
use crate::iucv::outgoing::State;
use crate::iucv::record::{ID_BYTES, IDS_MAX, MessageId, Record};
use fabric::path::{Counters, END_DATA_BYTES, Reason, Receiver, Sender, Severed};
use fabric::queue::IN_PLACE_BYTES_MAX;

impl Path {
    /// (QUIESCE) Asks the other side to send no messages. What the other side has sent by then still comes;
    /// replies go on in both directions.
    pub fn quiesce(&mut self) {
        self.wants_quiet = true;
        self.flush();
    }

    /// (RESUME) Lets the other side send messages again.
    pub fn resume(&mut self) {
        self.wants_quiet = false;
        self.flush();
    }

    /// (SEVER) Ends the path. What we have sent can still be received; the other side's user gets `data`.
    pub fn sever(&mut self, data: [u8; END_DATA_BYTES]) {
        self.flush();
        self.senders.iter_mut().for_each(|sender| sender.sever(data));
        self.receivers.iter_mut().for_each(|receiver| receiver.sever(data));
        self.is_severed_notified |= self.severed.is_none();
        self.end_for_good(Severed { reason: Reason::Ours, data });
    }

    /// Ends the path for a reason of ours: both queues each way, so that nobody waits over one for what does not
    /// come because of another.
    #[cold]
    pub fn fail(&mut self, reason: Reason) {
        let ended = self.receivers.each_mut().map(|receiver| receiver.fail(reason));
        self.senders.iter_mut().for_each(|sender| sender.fail(reason));
        self.end_for_good(ended[PLAIN]);
    }

    /// Shows those who watch how many messages there are in which state.
    #[inline]
    fn show_messages(&mut self) {
        let untaken = self.complete.len();
        let sent = &mut self.senders[PLAIN];
        sent.show(gauge::OUTSTANDING, self.table.len().saturating_sub(untaken) as u64);
        sent.show(gauge::WAITING, untaken as u64);
        let taken = &mut self.receivers[PLAIN];
        taken.show(gauge::OUTSTANDING, self.awaiting_count as u64);
        taken.show(gauge::WAITING, self.pending.len() as u64);
    }

    /// Hands over what was pushed.
    #[inline]
    pub fn hand_over(&mut self) {
        self.senders[PLAIN].flush();
    }

    /// Hands over what was pushed, and sends pending control records. To be called before waiting.
    #[inline]
    pub fn flush(&mut self) {
        self.hand_over();
        self.show_messages();
        // Records that find no room are sent later; there are never more than the other side may have sent.
        let _ = self.send_pending_controls();
        self.senders[URGENT].flush();
    }

    /// Sends pending control records. None if there was no room for all of them.
    fn send_pending_controls(&mut self) -> Option<()> {
        while !self.completed.is_empty() {
            self.send_completed()?;
        }
        while let Some(record) = self.ended.front() {
            self.send_control(*record)?;
            self.ended.pop_front();
        }
        while let Some(id) = self.purged.front().copied() {
            let entry = self.table.get_mut(id).expect("its index is taken until this is sent");
            if entry.state == State::PurgedLate {
                self.table.close(id);
            } else {
                self.send_control(Record::Purge(id))?;
                self.table.get_mut(id).expect("as above").state = State::Purged;
            }
            self.purged.pop_front();
        }
        if self.wants_quiet != self.has_sent_quiet {
            self.send_control(if self.wants_quiet { Record::Quiesce } else { Record::Resume })?;
            self.has_sent_quiet = self.wants_quiet;
        }
        Some(())
    }

    /// Sends a control record, if there is room.
    fn send_control(&mut self, record: Record) -> Option<()> {
        let (head, length) = record.bytes();
        self.senders[URGENT].send(&head[..length], &[]).ok()
    }

    /// Acknowledges as many received messages as go into one record, if there is room; without storage, as many
    /// as go into a line.
    #[cold]
    pub(super) fn send_completed(&mut self) -> Option<()> {
        let (head, length) = Record::Completed.bytes();
        let in_line = (IN_PLACE_BYTES_MAX - length) / ID_BYTES;
        let sent = [IDS_MAX, in_line].into_iter().find_map(|ids| {
            let sent = self.completed.len().min(ids * ID_BYTES);
            self.senders[URGENT].send(&head[..length], &self.completed[..sent]).ok().map(|()| sent)
        })?;
        self.completed.drain(..sent);
        Some(())
    }

    /// Whether control records are pending that could not be sent yet. On a path that has ended, and over a
    /// queue that has, none can be sent.
    pub fn has_pending_controls(&self) -> bool {
        self.severed.or(self.senders[URGENT].ended()).is_none() && self.pending_controls() > 0
    }

    /// How many control records are pending: at most one about each message of either side, and one about
    /// quiesce.
    pub fn pending_controls(&self) -> usize {
        let quiet = usize::from(self.wants_quiet != self.has_sent_quiet);
        self.completed.len() / ID_BYTES + self.ended.len() + self.purged.len() + quiet
    }

    /// The halves, to wait on: for queue 0 and 1.
    pub fn halves(&mut self) -> (&mut [Sender; QUEUES], &mut [Receiver; QUEUES]) {
        (&mut self.senders, &mut self.receivers)
    }

    /// The descriptors that become readable when something has come over either queue, and when something
    /// was returned, or the other side is gone.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.receivers[PLAIN].descriptor(), self.senders[PLAIN].descriptor()]
    }

    /// Whether what was received in part, or a reply taken in part, has more bytes by now.
    pub fn is_readable(&self, id: MessageId, priority: bool) -> bool {
        let receiver = &self.receivers[usize::from(priority)];
        self.pending.body(id).is_none_or(|body| body.is_readable(receiver))
    }

    /// Whether a reply that was taken in part has more bytes by now.
    pub fn is_reply_readable(&self, id: MessageId) -> bool {
        self.complete.body(id).is_none_or(|body| body.is_readable(&self.receivers[URGENT]))
    }

    /// Whether there is something in a queue to poll, or an end to notify of. A queue in front of which too
    /// much is buffered does not count.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.is_ready_for(|_| true)
    }

    /// Whether there is something in a queue to poll, or an end to notify of, for a caller that takes only the
    /// events that `wanted` lets through. The second queue counts whatever `wanted` says.
    #[inline]
    pub fn is_ready_for(&self, wanted: impl Fn(Interrupt) -> bool) -> bool {
        self.is_urgent_ready()
            || self.is_queue_ready(PLAIN) && wanted(Interrupt::MessagePending)
            || self.severed.is_some() && !self.is_severed_notified && wanted(Interrupt::PathSevered)
    }

    /// Listens to the doorbell of arrivals over either queue. Whether it rang.
    pub fn hear_arrivals(&mut self, listen: Listen) -> bool {
        let [plain, urgent] = &mut self.receivers;
        let heard = plain.hear(listen) > 0;
        if plain.ended().is_some() {
            // Perhaps the other side is gone, and the other queue has ended too.
            urgent.hear(Listen::Now);
        }
        heard
    }

    /// Listens to the doorbell of returns, for rings that have come already. Whether it rang.
    pub fn hear_returns(&mut self) -> bool {
        let [plain, urgent] = &mut self.senders;
        let heard = plain.hear(Listen::Now) > 0;
        if plain.ended().is_some() {
            urgent.hear(Listen::Now);
        }
        heard
    }

    /// Whether anybody can still ring the doorbell of arrivals, and that of returns.
    pub fn can_be_rung(&self) -> [bool; 2] {
        [
            self.receivers.iter().any(|receiver| receiver.ended().is_none()),
            self.senders.iter().any(|sender| sender.ended().is_none()),
        ]
    }

    /// Announces that we are about to sleep until something comes over one of these queues.
    pub fn announce_sleep(&mut self, queues: [bool; QUEUES]) {
        for (receiver, _) in self.receivers.iter_mut().zip(queues).filter(|(_, sleeps)| *sleeps) {
            receiver.announce_sleep();
        }
    }

    /// Gives back storage that was not used since the last call. To be called about once a second while the
    /// result is true: there may be more to give back later.
    pub fn trim(&mut self) -> bool {
        // What stands in front may lie in its receiver's memory.
        for (queue, receiver) in self.receivers.iter_mut().enumerate() {
            if self.pending.front(queue).is_none() && self.complete.front(queue).is_none() {
                receiver.trim();
            }
        }
        self.senders.iter_mut().fold(false, |may_trim, sender| may_trim | sender.trim())
    }

    /// The counters of the plain receiver, which stand for the waiting of all.
    pub fn counters(&mut self) -> &mut Counters {
        self.receivers[PLAIN].counters()
    }
}
