//! One end of the path between a channel and a control unit.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric::path::{
    JoinError, Lendable, Message, MessageRef, Receiver, Ringing, SendError, Sender, Severed, Shape,
    Side, Terms, View,
};
use os::doorbell::Doorbell;

use super::{HEAD_BYTES, Head, Kind};

/// Units that one poll takes at most: the other side can send as fast as this one polls.
pub const UNITS_PER_POLL_MAX: usize = 256;

/// Bytes of bodies that an end sends in one pass, about: what comes after them waits for the next pass.
pub const PASS_BYTES_MAX: usize = 16 << 20;

/// Why an end is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
    /// The other party has sent what is no unit.
    #[error("the other party broke the rules of the exchange")]
    Rules,
}

/// One end.
#[derive(Debug)]
pub struct Link {
    sender: Sender,
    receiver: Receiver,
    /// Units that the path had no room for.
    backlog: VecDeque<([u8; HEAD_BYTES], Vec<u8>)>,
    /// Units are received while there is a backlog. One end of the two must do so, or both could wait for each other for ever; its
    /// owner sends nothing new while the end is behind. The other end receives nothing meanwhile, which bounds its backlog.
    always_receives: bool,
    /// Units were pushed that were not handed over.
    is_pushed: bool,
    /// Bytes of bodies that were sent in this pass.
    pass_bytes: usize,
    /// Why the end is of no more use, if it is not.
    broken: Option<Broken>,
    /// Units that were sent, by kind.
    sent: [u64; Kind::ALL.len()],
    /// The other end is polled by the same thread: nobody rings. The last field: a sender that is dropped hands over what it has.
    news: Option<News>,
}

/// Whether something may have come, of two ends that one thread polls: a look at the path takes longer.
#[derive(Debug)]
struct News {
    ours: Arc<AtomicBool>,
    theirs: Arc<AtomicBool>,
}

impl News {
    fn pair() -> (News, News) {
        let (left, right) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let other = News { ours: right.clone(), theirs: left.clone() };
        (News { ours: left, theirs: right }, other)
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.theirs.store(true, Ordering::Release);
    }
}

/// A unit that arrived, until the next is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Its head.
    pub head: Head,
    message: MessageRef,
}

impl Link {
    /// An end of a path that is there.
    pub fn new(sender: Sender, receiver: Receiver) -> Link {
        Link {
            sender,
            receiver,
            backlog: VecDeque::new(),
            always_receives: false,
            is_pushed: false,
            pass_bytes: 0,
            broken: None,
            sent: [0; Kind::ALL.len()],
            news: None,
        }
    }

    /// Receives from now on also while there are units that the path has no room for. The owner sends nothing new while
    /// [`Link::is_behind`].
    pub fn always_receive(&mut self) {
        self.always_receives = true;
    }

    /// The other party broke the rules, or is gone: nothing is sent over this end and received from it any more, and what waits to be
    /// sent is dropped. The other party sees the path severed, if it is still there.
    pub fn give_up(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
        self.sender.sever([0; 16]);
        self.receiver.sever([0; 16]);
        if let Some(news) = &self.news {
            news.theirs.store(true, Ordering::Release);
        }
        self.backlog.clear();
        self.pass_bytes = 0;
    }

    /// Why the end is of no more use, if it was given up.
    #[inline]
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Whether units wait for room in the path, or enough bytes were sent in this pass.
    #[inline]
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty() || self.pass_bytes >= PASS_BYTES_MAX
    }

    /// Begins a pass: counts bytes from 0 again.
    #[inline]
    pub fn begin_pass(&mut self) {
        self.pass_bytes = 0;
    }

    /// Counts work for the other end's guests as bytes of this pass.
    #[inline]
    pub fn charge(&mut self, bytes: usize) {
        self.pass_bytes += bytes;
    }

    /// Sends a unit, perhaps with others: all have gone after [`Link::flush`]. If the path has no room the unit waits
    /// here, and goes with a later [`Link::receive`].
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn send(&mut self, head: &Head, body: &[u8]) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        self.sent[head.kind as usize - 1] += 1;
        self.pass_bytes += body.len();
        if self.backlog.is_empty() {
            match self.sender.push(&head.emit(), body) {
                Ok(()) => {
                    self.is_pushed = true;
                    return Ok(());
                }
                Err(SendError::Severed(severed)) => return Err(severed.into()),
                Err(_) => {}
            }
        }
        self.backlog.push_back((head.emit(), body.to_vec()));
        Ok(())
    }

    /// Hands over what was sent.
    #[inline]
    pub fn flush(&mut self) {
        match &self.news {
            Some(news) if std::mem::take(&mut self.is_pushed) => {
                self.sender.publish();
                news.theirs.store(true, Ordering::Release);
            }
            Some(_) => {}
            None => self.sender.flush(),
        }
    }

    #[cold]
    fn send_backlog(&mut self) -> Result<(), Broken> {
        while let Some((head, body)) = self.backlog.front() {
            match self.sender.send(head, body) {
                Ok(()) => drop(self.backlog.pop_front()),
                Err(SendError::Severed(severed)) => return Err(severed.into()),
                Err(_) => break,
            }
            if let Some(news) = &self.news {
                news.theirs.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Lends storage to the other party. Returns its number, under which the other party finds it.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn lend(&mut self, lendable: &Lendable) -> Result<u16, SendError> {
        self.sender.lend(lendable)
    }

    /// All of a storage that the other party has lent.
    pub fn lent(&self, segment: u16) -> Option<View> {
        self.receiver.lent(segment)
    }

    /// The next unit, if one has arrived.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn receive(&mut self) -> Result<Option<Unit>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if !self.backlog.is_empty() {
            self.send_backlog()?;
            if !self.backlog.is_empty() && !self.always_receives {
                return Ok(None);
            }
        }
        if self.news.as_ref().is_some_and(|news| !news.ours.load(Ordering::Acquire)) {
            return Ok(None);
        }
        let Some(message) = self.fetch()? else { return Ok(None) };
        let head = Head::parse(self.receiver.message(message).head).ok_or(Broken::Rules)?;
        Ok(Some(Unit { head, message }))
    }

    #[inline]
    fn fetch(&mut self) -> Result<Option<MessageRef>, Broken> {
        let message = self.receiver.fetch()?;
        let Some(news) = &self.news else { return Ok(message) };
        if message.is_some() || self.receiver.is_ready() {
            return Ok(message);
        }
        // What comes from now on is news again, and what came just before is found.
        news.ours.swap(false, Ordering::AcqRel);
        let message = self.receiver.fetch()?;
        if message.is_some() || self.receiver.is_ready() {
            news.ours.store(true, Ordering::Release);
        }
        Ok(message)
    }

    /// Whether [`Link::receive`] has something to do: a unit that has arrived, or a part of a long one.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match &self.news {
            Some(news) => news.ours.load(Ordering::Acquire) && self.receiver.is_ready(),
            None => self.receiver.is_ready(),
        }
    }

    /// The body of a unit that has just arrived.
    #[inline]
    pub fn body(&self, unit: Unit) -> &[u8] {
        let Message { body, .. } = self.receiver.message(unit.message);
        body
    }

    /// Peeks at the next unit: its head and body, if they are in memory of our own by now. The unit is not taken.
    #[inline]
    pub fn foresee(&self) -> Option<(Head, &[u8])> {
        let Message { head, body } = self.receiver.foresee_packed()?;
        Some((Head::parse(head)?, body))
    }

    /// Units that were sent over this end, by kind.
    pub fn sent(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.into_iter().zip(self.sent)
    }

    /// How many units of a kind were sent over this end.
    pub fn sent_of(&self, kind: Kind) -> u64 {
        self.sent[kind as usize - 1]
    }
}

/// Why no path was made.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// No memory or no descriptors left.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The two sides do not fit, which they do.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Both ends of a path between a channel and a control unit of one thread, which polls both: nobody sleeps, and nobody rings.
/// Whether the other sleeps is not looked up, which takes a fence for each unit.
///
/// # Errors
/// [`PairError`].
pub fn pair(terms: Terms) -> Result<(Link, Link), PairError> {
    let shape = Shape::SIMPLE;
    let (left, left_shown) = Side::create(shape)?;
    let (right, right_shown) = Side::create(shape)?;
    let (mut left_bells, mut right_bells) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (left, right) = Doorbell::ends()?;
        left_bells.push(left);
        right_bells.push(right);
    }
    let mut left = left.join(right_shown, left_bells, terms)?;
    let mut right = right.join(left_shown, right_bells, terms)?;
    let link = |halves: &mut fabric::path::Halves, news| {
        let mut sender = halves.senders.remove(0);
        sender.set_ringing(Ringing::Deferred);
        Link { news: Some(news), ..Link::new(sender, halves.receivers.remove(0)) }
    };
    let (ours, theirs) = News::pair();
    Ok((link(&mut left, ours), link(&mut right, theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cross_and_are_counted() {
        let (mut channel, mut unit) = pair(Terms::DEFAULT).unwrap();
        let head = Head { code: 0x86, ..Head::new(Kind::Command, 1, 2) };
        channel.send(&head, &[]).unwrap();
        channel.send(&Head::new(Kind::Data, 1, 2), &[7; 5000]).unwrap();
        channel.flush();
        let first = unit.receive().unwrap().unwrap();
        assert_eq!((first.head, unit.body(first).len()), (head, 0));
        let second = unit.receive().unwrap().unwrap();
        assert_eq!(unit.body(second), [7; 5000]);
        assert!(unit.receive().unwrap().is_none());
        let sent: Vec<_> = channel.sent().filter(|(_, sent)| *sent > 0).collect();
        assert_eq!(sent, [(Kind::Command, 1), (Kind::Data, 1)]);
    }

    #[test]
    fn units_that_find_no_room_wait() {
        let (mut channel, mut unit) = pair(Terms::DEFAULT).unwrap();
        for exchange in 0..1000 {
            channel.send(&Head::new(Kind::Status, 0, exchange), &[1; 100]).unwrap();
        }
        let mut found = 0;
        while found < 1000 {
            channel.flush();
            while let Some(arrived) = unit.receive().unwrap() {
                assert_eq!(arrived.head.exchange, found);
                found += 1;
            }
            assert!(channel.receive().unwrap().is_none());
        }
    }

    #[test]
    fn ends_that_are_both_behind_go_on() {
        let (mut channel, mut unit) = pair(Terms::DEFAULT).unwrap();
        channel.always_receive();
        for exchange in 0..1000 {
            for end in [&mut channel, &mut unit] {
                end.send(&Head::new(Kind::Data, 0, exchange), &[1; 100]).unwrap();
                end.flush();
            }
        }
        assert!(channel.is_behind() && unit.is_behind());
        let mut found = [0; 2];
        for _ in 0..1000 {
            for (end, found) in [&mut channel, &mut unit].into_iter().zip(&mut found) {
                while let Some(arrived) = end.receive().unwrap() {
                    assert_eq!(arrived.head.exchange, *found);
                    *found += 1;
                }
                end.flush();
            }
        }
        assert_eq!(found, [1000; 2]);
    }

    #[test]
    fn what_is_no_unit_breaks_the_exchange() {
        let (mut channel, mut unit) = pair(Terms::DEFAULT).unwrap();
        channel.sender.send(&[0; 16], &[]).unwrap();
        assert_eq!(unit.receive().unwrap_err(), Broken::Rules);
    }

    #[test]
    fn end_that_was_given_up_takes_and_brings_nothing() {
        let (mut channel, mut unit) = pair(Terms::DEFAULT).unwrap();
        for exchange in 0..1000 {
            for end in [&mut channel, &mut unit] {
                end.send(&Head::new(Kind::Data, 0, exchange), &[1; 100]).unwrap();
                end.flush();
            }
        }
        assert!(channel.is_behind());
        channel.give_up(Broken::Rules);
        assert_eq!((channel.is_behind(), channel.broken()), (false, Some(Broken::Rules)));
        assert_eq!(channel.receive().unwrap_err(), Broken::Rules);
        assert_eq!(channel.send(&Head::new(Kind::Data, 0, 7), &[]), Err(Broken::Rules));
    }

    #[test]
    fn end_that_goes_hands_over_what_it_has_sent() {
        let (mut channel, mut unit) = pair(Terms::DEFAULT).unwrap();
        assert!(unit.receive().unwrap().is_none());
        channel.send(&Head::new(Kind::Status, 0, 7), &[]).unwrap();
        assert!(unit.receive().unwrap().is_none());
        drop(channel);
        assert_eq!(unit.receive().unwrap().unwrap().head.exchange, 7);
    }
}
