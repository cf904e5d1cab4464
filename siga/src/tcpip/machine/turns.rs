//! Whose turn it is: deficit round robin over the time that clients take of a machine.

use std::collections::VecDeque;

use net::tcpip::service::{REQUESTS_PER_CALL_MAX, SHARE_MAX};

/// Time that a client is served for in one turn, for each unit of its share.
const QUANTUM_NS: i64 = 50_000;

/// A client owes so many turns at most. It may have been served for longer, because another program had the processor meanwhile.
const DEBT_TURNS_MAX: i64 = 8;

/// Clients that are served between two looks at the network, at most, how long that takes, about, and how many are looked at with those that are
/// passed over because they wait in line.
pub(super) const TURNS_PER_POLL: usize = 64;
pub(super) const TURNS_NS_MAX: u64 = 1_000_000;
pub(super) const LOOKS_PER_POLL: usize = 256;

/// Requests of one in line that are taken at once while others have something to do now and then: those wait for what the machine does with the
/// requests.
const PIECE_REQUESTS: usize = 4;

/// How long others have something to do now and then, after they have had something.
const PUNCTUAL_NS: u64 = 1_000_000;

/// Polls in which those in line are passed over at most, because others had something to do.
const PASSES_MAX: u32 = 4;

/// What the machine does besides is the time of those whose requests were taken, up to so much or so many times that which it took to take them: it may
/// be for somebody else, who has asked before, or whom somebody sends something.
const BESIDES_NS_MAX: u64 = 10_000;
const BESIDES_TIMES_MAX: u64 = 4;

/// The turns of all clients.
///
/// A client that asks for little is served when it asks, as the new flows of FQ-CoDel are (RFC 8290 4.1). A client that has used up a turn's time waits in
/// line for its next turn. So does a client that asks for more than is taken at once, and it stays in line until it has not done so for a round: else it
/// would be served beside those that ask for little each time that it has caught up. In a round each client of the line has its turn, and no client has
/// more than a turn's time.
#[derive(Debug)]
pub(super) struct Turns {
    /// By the clients' numbers.
    clients: Vec<Option<Turn>>,
    line: VecDeque<usize>,
    /// Counts rounds; one ends with the turn of this client, which was the last in line when it began.
    round: u64,
    last: Option<usize>,
    /// Clients that were served in this poll, and for how long.
    served: Vec<(usize, u64)>,
    /// The last client that was served and is not in line, when that was, and polls in a row in which those in line were passed over for such.
    punctual: Option<usize>,
    punctual_ns: u64,
    passes: u32,
    /// Requests that are taken at once from a client of the line.
    requests_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    /// What is left of its time; less than nothing if it took more.
    left_ns: i64,
    share: i64,
    /// The round that it has had time for, and the one in which it has asked for more than was taken at once, if it has.
    round: u64,
    asked_more: Option<u64>,
    /// Set while it waits in line.
    is_late: bool,
    /// Set if it has had a piece of its turn.
    is_begun: bool,
    /// Set if it may be given something in this turn, though what it asks for has taken all of its time.
    may_be_given: bool,
}

impl Turn {
    fn is_over(&self) -> bool {
        self.left_ns <= 0
    }

    /// Adds a turn's time; what was not used before is not saved.
    fn add(&mut self, round: u64) {
        let turn_ns = QUANTUM_NS * self.share;
        self.left_ns = (self.left_ns + turn_ns).min(turn_ns);
        self.round = round;
    }

    fn spend(&mut self, spent_ns: u64) {
        let spent_ns = i64::try_from(spent_ns).unwrap_or(i64::MAX);
        let least_ns = -DEBT_TURNS_MAX * QUANTUM_NS * self.share;
        self.left_ns = self.left_ns.saturating_sub(spent_ns).max(least_ns);
    }
}

/// What was taken of what a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It asks for nothing.
    Nothing,
    /// All of it.
    All,
    /// There may be more.
    More,
}

/// Whether a client may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// It has its next turn.
    pub(super) is_next: bool,
    /// It has time.
    pub(super) has_time: bool,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns {
            clients: Vec::new(),
            line: VecDeque::new(),
            round: 0,
            last: None,
            served: Vec::new(),
            punctual: None,
            punctual_ns: 0,
            passes: 0,
            requests_max: REQUESTS_PER_CALL_MAX,
        }
    }

    pub(super) fn add(&mut self, number: usize, share: u32) {
        if self.clients.len() <= number {
            self.clients.resize(number + 1, None);
        }
        let share = i64::from(share.clamp(1, SHARE_MAX));
        let mut turn = Turn {
            left_ns: 0,
            share,
            round: 0,
            asked_more: None,
            is_late: false,
            is_begun: false,
            may_be_given: false,
        };
        turn.add(self.round);
        self.clients[number] = Some(turn);
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.clients[number] = None;
        if self.last == Some(number) {
            // The round ends with the turn of the one before it.
            let at = self.line.iter().position(|late| *late == number);
            self.last = at.and_then(|at| self.line.get(at.checked_sub(1)?)).copied();
        }
        self.line.retain(|late| *late != number);
        self.served.retain(|(served, _)| *served != number);
    }

    fn get(&mut self, number: usize) -> Option<&mut Turn> {
        self.clients.get_mut(number)?.as_mut()
    }

    /// Returns true if a client waits for its next turn.
    pub(super) fn is_late(&self, number: usize) -> bool {
        self.clients.get(number).and_then(Option::as_ref).is_some_and(|turn| turn.is_late)
    }

    /// Requests that are taken from a client at once.
    pub(super) fn requests_max(&self, number: usize) -> usize {
        if self.is_late(number) { self.requests_max } else { REQUESTS_PER_CALL_MAX }
    }

    /// How long those in line are to be served now: about a turn's time, because the network and the others are looked at in between. While others
    /// have something to do now and then, it is one piece of a turn, however short, and none in a poll that has served some of them.
    pub(super) fn time_of_line(&mut self, now: u64) -> Option<u64> {
        let mut served = self.served.iter().rev().map(|(number, _)| *number);
        if let Some(punctual) = served.find(|number| !self.is_late(*number)) {
            (self.punctual, self.punctual_ns) = (Some(punctual), now);
            self.passes += 1;
            if self.passes <= PASSES_MAX {
                return None;
            }
        }
        self.passes = 0;
        // A client that is alone does not wait for itself.
        let is_alone = self.line.len() == 1 && self.line.front().copied() == self.punctual;
        let are_others = !is_alone && now.saturating_sub(self.punctual_ns) < PUNCTUAL_NS;
        self.requests_max = if are_others { PIECE_REQUESTS } else { REQUESTS_PER_CALL_MAX };
        Some(if are_others { 0 } else { QUANTUM_NS as u64 })
    }

    /// Takes the client out of the line whose turn it is. It is to be served now.
    pub(super) fn next(&mut self) -> Option<usize> {
        for _ in 0..self.line.len() {
            let number = self.line.pop_front()?;
            let Some(turn) = self.get(number) else { continue };
            // What was done for it besides may have taken the rest.
            if std::mem::take(&mut turn.is_begun) && turn.is_over() {
                self.line.push_back(number);
                self.end_turn(number);
                continue;
            }
            return Some(number);
        }
        None
    }

    /// A client is served.
    pub(super) fn begin(&mut self, number: usize) -> Begun {
        let round = self.round;
        let Some(turn) = self.get(number) else { return Begun { is_next: false, has_time: false } };
        let is_next = turn.is_late && turn.is_over();
        if is_next || !turn.is_late && turn.round != round {
            turn.add(round);
        }
        turn.may_be_given |= is_next && !turn.is_over();
        Begun { is_next, has_time: !turn.is_over() }
    }

    /// A client was served for so long.
    pub(super) fn end(&mut self, number: usize, spent_ns: u64, asked: Asked) {
        if asked != Asked::Nothing {
            self.served.push((number, spent_ns));
        }
        let round = self.round;
        let Some(turn) = self.get(number) else { return };
        turn.spend(spent_ns);
        if asked == Asked::More {
            turn.asked_more = Some(round);
        }
        if asked == Asked::More && turn.is_late && !turn.is_over() {
            // It was served a piece of its turn, and has the rest before others have theirs.
            turn.is_begun = true;
            return self.line.push_front(number);
        }
        let was_late = turn.is_late;
        let asked_more = turn.asked_more.is_some_and(|asked_more| round <= asked_more + 1);
        turn.is_late = turn.is_over() || asked_more && asked != Asked::Nothing;
        if turn.is_late {
            self.line.push_back(number);
        }
        if was_late {
            self.end_turn(number);
        }
    }

    /// A client of the line has had its turn.
    fn end_turn(&mut self, number: usize) {
        if self.last.is_none_or(|last| last == number) {
            self.round += 1;
            self.last = self.line.back().copied();
        }
    }

    /// A client has used so much time.
    pub(super) fn spend(&mut self, number: usize, spent_ns: u64) {
        let Some(turn) = self.get(number) else { return };
        turn.spend(spent_ns);
        if turn.is_over() {
            self.wait(number);
        }
    }

    /// It waits in line, if it does not yet.
    fn wait(&mut self, number: usize) {
        if let Some(turn) = self.get(number)
            && !std::mem::replace(&mut turn.is_late, true)
        {
            self.line.push_back(number);
        }
    }

    /// Returns true if something was taken in this poll.
    pub(super) fn has_served(&self) -> bool {
        !self.served.is_empty()
    }

    /// All that was done in a poll so far has taken so long. It is the time of those whose requests were taken, as far as it may be what they asked
    /// for.
    pub(super) fn charge(&mut self, poll_ns: u64) {
        let taking_ns: u64 = self.served.iter().map(|(_, spent_ns)| spent_ns).sum();
        let most_ns = taking_ns.saturating_mul(BESIDES_TIMES_MAX).max(BESIDES_NS_MAX);
        let besides_ns = poll_ns.saturating_sub(taking_ns).min(most_ns);
        let mut served = std::mem::take(&mut self.served);
        for (number, spent_ns) in served.drain(..) {
            let part = u128::from(besides_ns) * u128::from(spent_ns) / u128::from(taking_ns.max(1));
            self.spend(number, u64::try_from(part).unwrap_or(u64::MAX));
        }
        self.served = served;
    }

    /// Returns true if a client may be given something. If not, it waits for its next turn; it need not if it is alone. A client that always has more to
    /// ask for is given something once in a turn, which its next turns pay for.
    pub(super) fn may_give(&mut self, number: usize, are_others: bool) -> bool {
        let (round, in_line) = (self.round, self.line.len());
        let Some(turn) = self.get(number) else { return false };
        if !turn.is_late && turn.round != round {
            turn.add(round);
        }
        if std::mem::take(&mut turn.may_be_given) || !turn.is_over() {
            return true;
        }
        if are_others || in_line > usize::from(turn.is_late) {
            self.wait(number);
            return false;
        }
        turn.add(round);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client: its share, how long it takes to take what it asks for, and whether it has more then or not before the next poll.
    type Client = (u32, u64, bool);

    /// Serves clients as the machine does, so many polls, each of which takes so much more time. Returns how long each was served, and how often it
    /// was not in line when it asked.
    fn serve(clients: &[Client], polls: usize, besides_ns: u64) -> Vec<(u64, u64)> {
        let mut turns = Turns::new();
        for (number, (share, ..)) in clients.iter().enumerate() {
            turns.add(number, *share);
        }
        let mut done = vec![(0, 0); clients.len()];
        let mut now = 0;
        for _ in 0..polls {
            let begun = now;
            let mut asks = vec![true; clients.len()];
            let mut serve = |turns: &mut Turns, number: usize| {
                let (_, time_ns, has_more) = clients[number];
                let has_time = turns.begin(number).has_time;
                if !has_time || !std::mem::replace(&mut asks[number], has_more) {
                    return turns.end(number, 0, Asked::Nothing);
                }
                let asked = if has_more { Asked::More } else { Asked::All };
                turns.end(number, time_ns, asked);
                done[number].0 += time_ns;
                now += time_ns;
            };
            let mut punctual = Vec::new();
            for number in 0..clients.len() {
                if !turns.is_late(number) {
                    punctual.push(number);
                    serve(&mut turns, number);
                }
            }
            if turns.time_of_line(begun).is_some()
                && let Some(number) = turns.next()
            {
                serve(&mut turns, number);
            }
            now += besides_ns;
            turns.charge(now - begun);
            punctual.into_iter().for_each(|number| done[number].1 += 1);
        }
        done
    }

    fn times<const N: usize>(clients: [Client; N]) -> [u64; N] {
        let served = serve(&clients, 100_000, 0);
        std::array::from_fn(|number| served[number].0)
    }

    #[test]
    fn clients_in_line_are_served_as_long_though_in_pieces_that_differ() {
        let [one, other] = times([(1, 5_000, true), (1, 100_000, true)]);
        assert!(one.abs_diff(other) <= 200_000, "{one} and {other}");
    }

    #[test]
    fn largest_share_is_served_so_many_times_as_long() {
        let most = SHARE_MAX;
        let [large, small] = times([(most, 1000, true), (1, 1000, true)]);
        // At the end one of them may be in the middle of its turn.
        let turn_ns = QUANTUM_NS as u64 * u64::from(most);
        assert!(large.abs_diff(small * u64::from(most)) <= 2 * turn_ns, "{large} and {small}");
        // More than that is no more.
        assert_eq!(times([(1000, 1000, true), (1, 1000, true)]), [large, small]);
    }

    #[test]
    fn client_whose_bursts_end_with_its_turn_gets_no_more_than_its_share() {
        // One request that takes as long as six turns, and nothing more at that time; the other always has more.
        let [bursts, steady] = times([(1, 300_000, false), (1, 10_000, true)]);
        assert!(bursts <= steady + 300_000, "{bursts} and {steady}");
        let [bursts, steady] = times([(1, 300_000, false), (4, 10_000, true)]);
        assert!(4 * bursts <= steady + 4 * 300_000, "{bursts} and {steady}");
    }

    #[test]
    fn client_that_asks_for_less_than_its_share_never_waits_in_line() {
        let mut clients = vec![(1, 1000, true); 10];
        clients.push((1, 10, false));
        let polls = 100_000;
        for besides_ns in [0, 10] {
            let served = serve(&clients, polls, besides_ns);
            assert_eq!(served[10], (10 * polls as u64, polls as u64));
            assert!(served[..10].iter().all(|(_, punctual)| *punctual == 1), "{served:?}");
        }
    }

    #[test]
    fn what_is_done_besides_is_the_time_of_those_who_have_asked() {
        let served = serve(&[(1, 1000, true), (1, 1000, true), (2, 1000, true)], 100_000, 3000);
        let [one, other, double] = [0, 1, 2].map(|number| served[number].0);
        assert!(one.abs_diff(other) <= QUANTUM_NS as u64, "{served:?}");
        assert!(double.abs_diff(2 * one) <= 2 * QUANTUM_NS as u64, "{served:?}");
    }

    #[test]
    fn client_owes_some_turns_at_most_though_the_processor_was_another_programs() {
        let mut turns = Turns::new();
        (0..2).for_each(|number| turns.add(number, 1));
        turns.end(1, 10, Asked::More);
        turns.end(0, u64::MAX / 2, Asked::All);
        turns.charge(u64::MAX);
        let mut visits = 0;
        while turns.is_late(0) {
            let number = turns.next().unwrap();
            let asks = turns.begin(number).has_time && number == 1;
            match asks {
                true => turns.end(number, QUANTUM_NS as u64, Asked::More),
                false => turns.end(number, 0, Asked::Nothing),
            }
            visits += i64::from(number == 0);
            assert!(visits < 100);
        }
        assert!((DEBT_TURNS_MAX..=DEBT_TURNS_MAX + 1).contains(&visits), "{visits}");
    }

    #[test]
    fn client_that_always_has_more_to_ask_for_is_given_something_in_each_turn_that_it_has() {
        let mut turns = Turns::new();
        (0..2).for_each(|number| turns.add(number, 1));
        (0..2).for_each(|number| turns.end(number, 10, Asked::More));
        let mut given = [0_u32, 0];
        for _ in 0..1000 {
            let number = turns.next().unwrap();
            match turns.begin(number).has_time {
                true => turns.end(number, QUANTUM_NS as u64, Asked::More),
                false => turns.end(number, 0, Asked::Nothing),
            }
            turns.charge(QUANTUM_NS as u64);
            for (number, given) in given.iter_mut().enumerate() {
                if turns.may_give(number, true) {
                    turns.spend(number, QUANTUM_NS as u64 / 2);
                    *given += 1;
                }
            }
        }
        assert!(given[0] > 100 && given[0].abs_diff(given[1]) <= 2, "{given:?}");
    }

    #[test]
    fn client_that_has_asked_for_more_stays_in_line_until_it_asks_for_nothing_or_a_round_is_over() {
        for (last, turns_more) in [(Asked::All, 3), (Asked::Nothing, 1)] {
            let mut turns = Turns::new();
            turns.add(0, 1);
            turns.end(0, 10, Asked::More);
            for _ in 0..turns_more {
                assert_eq!((turns.is_late(0), turns.next()), (true, Some(0)));
                turns.end(0, 10, last);
            }
            assert_eq!((turns.is_late(0), turns.next()), (false, None));
        }
    }

    #[test]
    fn client_that_has_used_up_its_time_waits_for_one_turn() {
        let mut turns = Turns::new();
        turns.add(0, 1);
        turns.end(0, QUANTUM_NS as u64, Asked::All);
        assert_eq!((turns.is_late(0), turns.next()), (true, Some(0)));
        assert_eq!(turns.begin(0), Begun { is_next: true, has_time: true });
        turns.end(0, 10, Asked::All);
        assert!(!turns.is_late(0));
    }

    #[test]
    fn one_that_leaves_ends_no_round_and_is_not_served_again() {
        let mut turns = Turns::new();
        (0..4).for_each(|number| turns.add(number, 1));
        (0..4).for_each(|number| turns.end(number, 10, Asked::More));
        // The end of the first turn begins a round, which ends with the turn of whoever is the last in line then.
        assert_eq!(turns.next(), Some(0));
        turns.end(0, QUANTUM_NS as u64, Asked::All);
        let round = turns.round;
        turns.remove(0);
        turns.charge(1000);
        for number in [1, 2] {
            assert_eq!(turns.next(), Some(number));
            turns.end(number, QUANTUM_NS as u64, Asked::All);
            assert_eq!(turns.round, round, "after the turn of {number}");
        }
        assert_eq!(turns.next(), Some(3));
        turns.end(3, QUANTUM_NS as u64, Asked::All);
        assert_eq!(turns.round, round + 1);
    }
}
