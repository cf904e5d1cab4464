//! Processes the host's messages, and reconnects after the host's end.

use std::io;

use fabric::control::{Malformed, ORDERS_MAX, PACKET_BYTES_MAX, Problem, Reply, Request};
use os::foreign::Foreign;
use os::packets::Packets;
use os::processor::now_ns;

use super::inbox::{Answer, Awaited, Standing};
use super::{ANSWER_TIME, Guest, NO_DATA};

/// How often a guest whose host has died polls for a new one.
const RETRY_NS: u64 = 100_000_000;

/// Packets of the host that are taken in at once: one that never stops must not keep its guests from what
/// else they do. The descriptor stays readable while there are more.
const PACKETS_PER_POLL: usize = 64;

/// Connections that wait for this guest, as far as we keep them: the host does not send more.
const PENDING_MAX: usize = 2 * fabric::control::PENDING_MAX;

impl Guest {
    /// Takes in what the host has sent, without waiting, and looks for a new host if it is gone. To be called when
    /// the guest's descriptor is readable: the descriptor is not, until something comes again, or a connection is
    /// left behind by a verb that has handed out another. What has come by now has to be asked for after that: see
    /// [`Guest::has_news`].
    pub fn poll(&self) {
        self.poll_at(now_ns());
    }

    /// Polls at a time of the machine's clock, for models in virtual time. Returns when to come back though nothing
    /// was heard: the descriptor becomes readable then.
    pub fn poll_at(&self, now_ns: u64) -> Option<u64> {
        let due_ns = self.poll_inside(now_ns);
        if self.inbox.borrow().is_asleep {
            // A waiter sleeps on the descriptor, and this is not its poll.
            self.pass_on();
        } else {
            self.inbox.borrow_mut().has_come = false;
        }
        due_ns
    }

    /// Polls for a waiter that has heard the descriptor.
    pub(crate) fn hear(&self, now_ns: u64) {
        self.poll_inside(now_ns);
        self.inbox.borrow_mut().has_come = false;
    }

    /// Records whether a waiter relies on the descriptor.
    pub(crate) fn set_asleep(&self, is_asleep: bool) {
        self.inbox.borrow_mut().is_asleep = is_asleep;
    }

    /// Polls for a verb that waits for something of its own: see [`Guest::pass_on`].
    pub(super) fn poll_inside(&self, now_ns: u64) -> Option<u64> {
        let due_ns = self.poll_host(now_ns);
        let reminder_ns = self.inbox.borrow_mut().remind(now_ns);
        let due_ns = [due_ns, reminder_ns].into_iter().flatten().min();
        self.link.set_alarm(due_ns, now_ns)
    }

    /// Makes the descriptor readable again if a verb has consumed packets that another waiter needs. Every verb does so
    /// until that waiter polls, because each poll sets the alarm anew.
    pub(super) fn pass_on(&self) {
        if self.inbox.borrow().has_come && self.has_news() {
            self.link.ring();
        }
    }

    fn poll_host(&self, now_ns: u64) -> Option<u64> {
        if self.link.in_child() && !self.is_forsaken() {
            self.lose_host(now_ns);
        }
        // Copied, so that the inbox is not borrowed in what follows.
        let standing = self.inbox.borrow().standing;
        match standing {
            Standing::Alone { retry_ns } if now_ns < retry_ns => return Some(retry_ns),
            Standing::Alone { .. } => self.connect_to_host(now_ns),
            Standing::Attached | Standing::Asking { .. } if self.link.has_given_up() => {
                self.lose_host(now_ns);
            }
            Standing::Attached | Standing::Asking { .. } => {}
        }
        self.take_in(now_ns);
        self.forget_unclaimed();
        let rejoined = self.link.make_up(now_ns);
        self.inbox.borrow_mut().rejoining.extend(rejoined);
        let standing = self.inbox.borrow().standing;
        match standing {
            Standing::Attached => None,
            Standing::Alone { retry_ns } => Some(retry_ns),
            Standing::Asking { give_up_ns, .. } if now_ns >= give_up_ns => {
                self.lose_host(now_ns);
                Some(now_ns + RETRY_NS)
            }
            Standing::Asking { give_up_ns, .. } => Some(give_up_ns),
        }
    }

    /// Takes in what the host has sent, and nothing else of a poll.
    pub(super) fn take_in(&self, now_ns: u64) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        for _ in 0..PACKETS_PER_POLL {
            let Some(packets) = self.link.packets() else { return };
            match packets.receive(&mut buffer) {
                Ok(packet) if packet.bytes > 0 => {
                    match Reply::parse(&buffer[..packet.bytes]) {
                        Ok((serial, reply)) => self.sort(serial, reply, packet.passed(), now_ns),
                        // An older host answers in its own version, whatever it says.
                        Err(Malformed::Version { serial, .. }) => {
                            let failed = Reply::Failed { problem: Problem::Version, data: NO_DATA };
                            self.sort(serial, failed, packet.passed(), now_ns);
                        }
                        // From a host of another kind: nothing to be done.
                        Err(_) => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The host has closed the connection without reading all. That is reported once, before what it had
                // sent: why, perhaps.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                _ => return self.lose_host(now_ns),
            }
        }
    }

    /// Drops answers whose claims were dropped.
    pub(super) fn forget_unclaimed(&self) {
        let mut inbox = self.inbox.borrow_mut();
        let unclaimed = inbox.answers.extract_if(|_, awaited| !awaited.is_claimed());
        for (_, Awaited { answer, .. }) in unclaimed {
            if let Some(Answer::Reply(Reply::Joined(joined), _)) = answer {
                self.give_up(joined.path);
            }
        }
    }

    /// Reports to the host that a path it has made is not used.
    pub(super) fn give_up(&self, path: u64) {
        self.link.notify_host(&Request::Ended { path });
    }

    /// Puts a message where it is awaited.
    fn sort(&self, serial: u32, reply: Reply, descriptors: io::Result<Vec<Foreign>>, now_ns: u64) {
        let mut inbox = self.inbox.borrow_mut();
        inbox.has_come = true;
        if let Some(awaited) = inbox.answers.get_mut(&serial) {
            awaited.answer = Some(Answer::Reply(reply, descriptors));
            return;
        }
        if let Some(account) = inbox.rejoining.remove(&serial) {
            match reply {
                Reply::Done { path } if !self.link.settle(account, path) => self.give_up(path),
                // What is lacking now, or taken by other paths and guests, may be there later.
                Reply::Failed {
                    problem:
                        Problem::HostResources
                        | Problem::Limit(_)
                        | Problem::OwnPathLimit
                        | Problem::StorageLimit,
                    ..
                } => self.link.defer(account, now_ns),
                // It is accounted, or never will be.
                _ => {}
            }
            return;
        }
        match (inbox.standing, reply) {
            (_, Reply::Pending(pending)) if inbox.pending.len() < PENDING_MAX => {
                inbox.pending.push_back((pending, false));
            }
            (_, Reply::Order(order))
                if inbox.seldom.takes_orders && inbox.seldom.orders.len() < ORDERS_MAX =>
            {
                inbox.seldom.orders.push_back(order);
            }
            (_, Reply::Withdrawn { path }) => {
                inbox.forget_pending(path);
            }
            // The host takes no connection of ours.
            (_, Reply::Failed { problem, .. }) if serial == 0 => {
                inbox.seldom.turned_away = Some(problem);
            }
            // A path that we did not want to wait for any longer.
            (_, Reply::Joined(joined)) => self.give_up(joined.path),
            (Standing::Asking { serial: asked, .. }, reply) if asked == serial => {
                if reply == Reply::Attached {
                    inbox.stand(Standing::Attached);
                    inbox.attachments = inbox.attachments.wrapping_add(1);
                    inbox.seldom.turned_away = None;
                    inbox.is_newly_attached = inbox.follows_hosts;
                    for (resource, scope) in self.resources.borrow().iter().copied() {
                        // If another guest has registered the resource first, the host refuses this one.
                        self.link.notify_host(&Request::Identify { resource, scope });
                    }
                    if inbox.seldom.takes_orders {
                        self.link.notify_host(&Request::TakeOrders);
                    }
                    self.link.start_rejoining();
                } else {
                    // The host may not have noticed yet that the old connection is closed.
                    if let Reply::Failed { problem, .. } = reply {
                        inbox.seldom.turned_away = Some(problem);
                    }
                    drop(inbox);
                    self.lose_host(now_ns);
                }
            }
            _ => {}
        }
    }

    /// There is no host any more: what was asked of it will not be answered.
    pub(super) fn lose_host(&self, now_ns: u64) {
        self.drop_packets();
        let mut inbox = self.inbox.borrow_mut();
        inbox.has_come = true;
        for awaited in inbox.answers.values_mut() {
            // An answer that came and was not taken is void too: a new host would not account the path. A
            // refusal stays one.
            if !matches!(awaited.answer, Some(Answer::Reply(Reply::Failed { .. }, _))) {
                awaited.answer = Some(Answer::HostGone);
            }
        }
        inbox.rejoining.clear();
        inbox.pending.clear();
        inbox.seldom.orders.clear();
        inbox.is_newly_withdrawn = true;
        inbox.seldom.refused = inbox.seldom.turned_away;
        // A host in this process does not come back, and a forked child is a guest of none.
        let comes_back = self.socket.is_some() && !self.link.in_child();
        let retry_ns = if comes_back { now_ns + RETRY_NS } else { u64::MAX };
        inbox.stand(Standing::Alone { retry_ns });
        inbox.is_newly_forsaken = !comes_back;
    }

    /// Drops the connection. It may be closed only later, if the host has passed what takes long to be closed,
    /// and would be readable in the poller for as long.
    fn drop_packets(&self) {
        if let Some(packets) = self.link.packets() {
            let _ = self.poller.remove(&*packets);
        }
        self.link.set_packets(None);
    }

    fn connect_to_host(&self, now_ns: u64) {
        let retry = Standing::Alone { retry_ns: now_ns + RETRY_NS };
        self.inbox.borrow_mut().standing = retry;
        let Some(Ok(packets)) = self.socket.as_ref().map(|socket| Packets::connect(socket)) else {
            let mut inbox = self.inbox.borrow_mut();
            inbox.seldom.refused = None;
            return inbox.stand(retry);
        };
        if self.poller.add(&packets, 0).is_err() {
            return;
        }
        self.link.set_packets(Some(packets));
        self.inbox.borrow_mut().seldom.turned_away = None;
        if let Ok(serial) = self.link.ask(&Request::Attach { name: self.name }, &[]) {
            let give_up_ns = now_ns + ANSWER_TIME.as_nanos() as u64;
            self.inbox.borrow_mut().standing = Standing::Asking { serial, give_up_ns };
        } else {
            self.drop_packets();
        }
    }
}
