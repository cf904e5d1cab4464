//! Flows of which the distributor does not know the target: it asks all targets, and keeps what has come meanwhile.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::flows::{Flow, owner};
use crate::lan::offload::Offload;
use crate::tcpip::hashed::HashMap;

/// Flows that are asked for at once, at most. A client (of IPv6 a network) has as many as are free.
const QUESTIONS_MAX: usize = 1024;

/// Frames that wait for one flow, and bytes of all frames that wait, of which a client has as many as are free. Others are dropped, and sent again by their clients.
const FRAMES_MAX: usize = 8;
const BYTES_MAX: usize = 4 << 20;

/// How long targets have to answer, and the time after which those that have not answered are asked again.
const ANSWER_NS: u64 = 300_000_000;
const AGAIN_NS: u64 = 40_000_000;

/// A frame that waits.
pub(super) type Kept = (Offload, Vec<u8>);

/// A flow that is asked for.
#[derive(Debug)]
pub(super) struct Question {
    /// The target for which a first segment is to be sent on if nobody has the flow.
    pub(super) is_first: bool,
    /// The targets that have said that they do not have it.
    pub(super) without: u64,
    until: u64,
    again: u64,
    pub(super) frames: Vec<Kept>,
    /// The reset that the client takes if nobody has the flow.
    pub(super) reset: Option<Reset>,
}

/// A reset that the other side takes (RFC 9293 3.10.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) enum Reset {
    /// One with this number, which the other side has acknowledged.
    At(u32),
    /// One that acknowledges up to this number, because the other side has acknowledged nothing.
    Answering(u32),
}

#[derive(Debug, Default)]
pub(super) struct Questions {
    asked: HashMap<Flow, Question>,
    /// How many each client has, and bytes of frames.
    of_clients: HashMap<IpAddr, (usize, usize)>,
    bytes: usize,
    /// By the time at which they end: those that are asked for, and no others.
    order: BTreeSet<(u64, Flow)>,
    /// By the time at which they are asked again. New ones are asked at once.
    again: BTreeSet<(u64, Flow)>,
}

impl Questions {
    /// Keeps a frame until it is known who has its flow. Returns false if the flow is not asked for: too many are.
    pub(super) fn ask(
        &mut self,
        now: u64,
        flow: Flow,
        (is_first, reset): (bool, Option<Reset>),
        frame: Kept,
    ) -> bool {
        let client = owner(flow.client.ip());
        if !self.asked.contains_key(&flow) {
            let of_client = self.of_clients.get(&client).map_or(0, |(count, _)| *count);
            let free = QUESTIONS_MAX - self.asked.len();
            if free == 0 || of_client > free {
                return false;
            }
            self.of_clients.entry(client).or_default().0 += 1;
            let until = now.saturating_add(ANSWER_NS);
            let frames = Vec::new();
            let question = Question { is_first, without: 0, until, again: now, frames, reset };
            self.asked.insert(flow, question);
            self.order.insert((until, flow));
            self.again.insert((now, flow));
        }
        let Some(question) = self.asked.get_mut(&flow) else { return false };
        // A client that has gone on knows more of the connection than it did with its first segment.
        question.is_first &= is_first;
        question.reset = reset.or(question.reset);
        let bytes = frame.1.len();
        if let Some((_, of_client)) = self.of_clients.get_mut(&client)
            && question.frames.len() < FRAMES_MAX
            && *of_client + bytes <= BYTES_MAX - self.bytes
        {
            *of_client += bytes;
            self.bytes += bytes;
            question.frames.push(frame);
        }
        true
    }

    pub(super) fn find_mut(&mut self, flow: &Flow) -> Option<&mut Question> {
        self.asked.get_mut(flow)
    }

    /// Ends a question.
    pub(super) fn take(&mut self, flow: &Flow) -> Option<Question> {
        let question = self.asked.remove(flow)?;
        self.order.remove(&(question.until, *flow));
        self.again.remove(&(question.again, *flow));
        let bytes = question.frames.iter().map(|(_, frame)| frame.len()).sum::<usize>();
        self.bytes -= bytes;
        let client = owner(flow.client.ip());
        if let Some((count, of_client)) = self.of_clients.get_mut(&client) {
            (*count, *of_client) = (*count - 1, *of_client - bytes);
            if *count == 0 {
                self.of_clients.remove(&client);
            }
        }
        Some(question)
    }

    /// Ends the next question whose time is over.
    pub(super) fn expire(&mut self, now: u64) -> Option<(Flow, Question)> {
        let (_, flow) = self.order.first().copied().filter(|(until, _)| *until <= now)?;
        self.take(&flow).map(|question| (flow, question))
    }

    /// The next flow that the targets are to be asked for now.
    pub(super) fn next_to_ask(&mut self, now: u64) -> Option<Flow> {
        let (at, flow) = self.again.first().copied().filter(|(at, _)| *at <= now)?;
        self.again.remove(&(at, flow));
        let question = self.asked.get_mut(&flow)?;
        question.again = now.saturating_add(AGAIN_NS);
        self.again.insert((question.again, flow));
        Some(flow)
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> Option<u64> {
        let firsts = [&self.order, &self.again].map(|list| list.first().map(|(at, _)| *at));
        firsts.into_iter().flatten().min()
    }

    /// All flows that are asked for.
    pub(super) fn flows(&self) -> impl Iterator<Item = Flow> {
        self.asked.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn flow(client: [u8; 4], port: u16) -> Flow {
        Flow { client: SocketAddr::new(client.into(), port), port: 80 }
    }

    fn ask(questions: &mut Questions, now: u64, flow: Flow, bytes: usize) -> bool {
        questions.ask(now, flow, (false, Some(Reset::At(7))), (Offload::NONE, vec![0; bytes]))
    }

    #[test]
    fn frames_wait_until_somebody_answers_or_the_time_is_over() {
        let mut questions = Questions::default();
        let [one, other] = [1, 2].map(|port| flow([10, 1, 0, 1], port));
        assert!(ask(&mut questions, 0, one, 100) && ask(&mut questions, 1, other, 10));
        assert!(ask(&mut questions, 2, one, 50));
        assert_eq!(questions.due(), Some(0), "asked at once");
        let asked: Vec<Flow> = std::iter::from_fn(|| questions.next_to_ask(2)).collect();
        assert_eq!(asked, [one, other]);
        assert_eq!(questions.due(), Some(2 + AGAIN_NS));
        assert_eq!(questions.take(&one).unwrap().frames.len(), 2);
        assert_eq!(questions.bytes, 10);
        assert!(questions.expire(ANSWER_NS).is_none());
        assert_eq!(questions.expire(ANSWER_NS + 1).unwrap().0, other);
        assert_eq!(questions.bytes, 0);
        assert!(questions.asked.is_empty() && questions.of_clients.is_empty());
        assert!(questions.next_to_ask(u64::MAX).is_none());
        assert_eq!(questions.due(), None);
    }

    #[test]
    fn no_client_asks_for_all_and_bytes_have_a_limit() {
        let mut questions = Questions::default();
        let asked = (1..2000).filter(|port| ask(&mut questions, 0, flow([10, 1, 0, 1], *port), 0));
        assert_eq!(asked.count(), QUESTIONS_MAX / 2 + 1);
        let other = flow([10, 1, 0, 2], 1);
        assert!((0..2 * FRAMES_MAX).all(|_| ask(&mut questions, 0, other, 1 << 20)));
        assert_eq!(questions.bytes, BYTES_MAX / 2, "as many as are free");
        for client in 3..=255 {
            for port in 1..9 {
                ask(&mut questions, 0, flow([10, 1, 0, client], port), 0);
            }
        }
        assert_eq!(questions.asked.len(), QUESTIONS_MAX);
        assert!(!ask(&mut questions, 0, flow([10, 1, 1, 1], 1), 0));
    }

    #[test]
    fn what_was_answered_is_in_nobodys_way() {
        let mut questions = Questions::default();
        for round in 0..20 {
            for port in 0..500 {
                let flow = flow([10, 1, 0, 1], port);
                assert!(ask(&mut questions, round, flow, 10));
                assert_eq!(questions.next_to_ask(round), Some(flow));
                assert!(questions.take(&flow).is_some());
            }
        }
        assert!(ask(&mut questions, 20, flow([10, 1, 0, 2], 1), 10));
        assert_eq!((questions.order.len(), questions.again.len()), (1, 1));
    }

    #[test]
    fn a_host_of_ipv6_is_one_client_with_all_its_addresses() {
        let mut questions = Questions::default();
        let of = |host: u16| Flow {
            client: SocketAddr::new([0xfd00, 0, 0, 1, 0, 0, 0, host].into(), 7),
            port: 80,
        };
        let asked = (1..2000).filter(|host| ask(&mut questions, 0, of(*host), 0));
        assert_eq!(asked.count(), QUESTIONS_MAX / 2 + 1);
    }
}
