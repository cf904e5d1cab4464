//! Messages from the host that no verb has consumed yet.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};

use fabric::control::{Order, Pending, Problem, Reply};
use os::foreign::Foreign;

use super::attachment::{AttachmentState, Followers};

#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) standing: Standing,
    /// How many hosts there have been; whether anybody wants to know of the next, and was not told of the last.
    pub(super) attachments: u32,
    pub(super) follows_hosts: bool,
    pub(super) is_newly_attached: bool,
    /// Answers that are awaited, and those that have come and were not claimed yet.
    pub(super) answers: HashMap<u32, Awaited>,
    /// Accounts of paths whose new number is awaited.
    pub(super) rejoining: HashMap<u32, u64>,
    /// Connections that wait, in order, and whether they were handed out to be accepted or refused.
    pub(super) pending: VecDeque<(Pending, bool)>,
    /// One that was handed out was taken back, which its holder has not asked for yet.
    pub(super) is_newly_withdrawn: bool,
    pub(super) seldom: Box<Seldom>,
    /// There will be no host again, which was not reported yet.
    pub(super) is_newly_forsaken: bool,
    /// When somebody wants to look at something, though nothing may have come (`u64::MAX`: never); whether that time has
    /// come.
    pub(super) reminder_ns: u64,
    pub(super) is_reminded: bool,
    /// Something has arrived, or was left, since the descriptor's waiter polled last.
    pub(super) has_come: bool,
    /// A waiter waits for the descriptor, and polls when it is readable.
    pub(super) is_asleep: bool,
    /// Questions since the last that took in what the host had sent.
    pub(super) questions: u8,
}

/// What few guests have. It has a place of its own, so that a guest is no larger for it.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    /// Why the host has refused the guest, or its connection, at the last try.
    pub(super) turned_away: Option<Problem>,
    /// Orders of observers that nobody has taken, in order, if this guest takes orders.
    pub(super) takes_orders: bool,
    pub(super) orders: VecDeque<Order>,
    /// The same, once it is known that nothing comes of that try.
    pub(super) refused: Option<Problem>,
    /// Those that follow from other threads whether this guest has a host.
    pub(super) followers: Followers,
}

/// Keeps an answer awaited: dropping the claim abandons the answer.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) serial: u32,
    _alive: Arc<()>,
}

#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) claim: Weak<()>,
    pub(super) answer: Option<Answer>,
    /// The answer is left to the verb that takes it, and no longer counts as news.
    pub(super) is_left: bool,
}

impl Awaited {
    pub(super) fn is_claimed(&self) -> bool {
        self.claim.strong_count() > 0
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// The reply, and what came with it; an error if this process had no descriptor left for that.
    Reply(Reply, io::Result<Vec<Foreign>>),
    /// The host that it was asked of is gone.
    HostGone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Attached,
    /// The host is gone.
    Alone {
        retry_ns: u64,
    },
    /// A new host has been asked.
    Asking {
        serial: u32,
        give_up_ns: u64,
    },
}

impl Inbox {
    /// An empty one, of a guest that has a host.
    pub(super) fn new() -> Inbox {
        Inbox {
            standing: Standing::Attached,
            attachments: 1,
            follows_hosts: false,
            is_newly_attached: false,
            answers: HashMap::new(),
            rejoining: HashMap::new(),
            pending: VecDeque::new(),
            is_newly_withdrawn: false,
            seldom: Box::default(),
            is_newly_forsaken: false,
            reminder_ns: u64::MAX,
            is_reminded: false,
            has_come: false,
            is_asleep: false,
            questions: 0,
        }
    }

    /// The guest has a host, or has none.
    pub(super) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
        if standing == Standing::Attached {
            self.seldom.refused = None;
        }
        self.seldom.followers.set(self.attachment_state());
    }

    pub(super) fn attachment_state(&self) -> AttachmentState {
        match (self.standing, self.seldom.refused) {
            (Standing::Attached, _) => AttachmentState::Attached,
            (_, None) => AttachmentState::Alone,
            (_, Some(problem)) => AttachmentState::Refused(problem),
        }
    }

    /// Makes room for the answer that will carry this serial.
    pub(super) fn await_answer(&mut self, serial: u32) -> Claim {
        let alive = Arc::new(());
        let awaited = Awaited { claim: Arc::downgrade(&alive), answer: None, is_left: false };
        self.answers.insert(serial, awaited);
        Claim { serial, _alive: alive }
    }

    /// Connections that wait and were not handed out, in order.
    pub(super) fn not_handed_out(&self) -> impl Iterator<Item = Pending> {
        let waiting = self.pending.iter().filter(|(_, is_handed_out)| !is_handed_out);
        waiting.map(|(pending, _)| *pending)
    }

    /// A connection is handed out, to be accepted or refused.
    pub(super) fn hand_out(&mut self, pending: &Pending) {
        let is_meant =
            |(known, is_handed_out): &&mut (Pending, bool)| known == pending && !*is_handed_out;
        if let Some((_, is_handed_out)) = self.pending.iter_mut().find(is_meant) {
            *is_handed_out = true;
        }
    }

    /// Whether a connection waits, which it does no longer. All of it is compared: the next host begins with
    /// the same numbers.
    pub(super) fn take_pending(&mut self, pending: &Pending) -> bool {
        let at = self.pending.iter().position(|(known, _)| known == pending);
        at.and_then(|at| self.pending.remove(at)).is_some()
    }

    /// Whether the time has come that somebody wants to be reminded of, which is news then; when it comes, if it has not.
    pub(super) fn remind(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.reminder_ns {
            return (self.reminder_ns < u64::MAX).then_some(self.reminder_ns);
        }
        (self.reminder_ns, self.is_reminded, self.has_come) = (u64::MAX, true, true);
        None
    }

    pub(super) fn forget_pending(&mut self, path: u64) {
        self.pending.retain(|(pending, is_handed_out)| {
            let is_it = pending.path == path;
            self.is_newly_withdrawn |= is_it && *is_handed_out;
            !is_it
        });
    }

    pub(super) fn take_answer(&mut self, claim: &Claim) -> Option<Answer> {
        let answer = self.answers.get_mut(&claim.serial)?.answer.take()?;
        self.answers.remove(&claim.serial);
        Some(answer)
    }
}
