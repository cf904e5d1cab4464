use super::*;
use crate::links::MTU;

const SECOND: u64 = 1_000_000_000;

/// Both ends of a line.
struct Ends {
    connectors: [Connector; 2],
    drivers: [Driver; 2],
}

impl Ends {
    fn new(mtus: [usize; 2]) -> Ends {
        let greeting = |mtu| Greeting::new(None, Connector::wide_bytes_max(mtu));
        let mut connectors =
            [Connector::new(greeting(mtus[0]), true), Connector::new(greeting(mtus[1]), false)];
        connectors.iter_mut().for_each(|connector| connector.start(0));
        Ends { connectors, drivers: mtus.map(Driver::new) }
    }

    fn poll(&mut self, end: usize, now: u64) -> Option<Act> {
        self.connectors[end].poll(now, &mut self.drivers[end])
    }

    /// Has an end ask.
    fn ask(&mut self, end: usize, now: u64) -> UserData {
        match self.poll(end, now) {
            Some(Act::Connect(data)) => data,
            other => panic!("end {end} does {other:?}"),
        }
    }

    fn requested(&mut self, end: usize, data: UserData) -> Answer {
        self.connectors[end].requested(0, data, &mut self.drivers[end])
    }

    /// Has an end accept the other's request, and the other take note.
    fn accept(&mut self, end: usize, now: u64, data: UserData) {
        let (data, terms) = match self.requested(end, data) {
            Answer::Accept(data, terms) | Answer::AcceptInstead(data, terms) => (data, terms),
            Answer::Refuse => panic!("end {end} refuses"),
        };
        self.connectors[end].accepted(terms, &mut self.drivers[end]);
        assert!(self.connectors[1 - end].connected(now, data, &mut self.drivers[1 - end]));
    }

    fn states(&self) -> [State; 2] {
        [0, 1].map(|end| self.connectors[end].state(&self.drivers[end]))
    }

    fn terms(&self) -> [Option<Terms>; 2] {
        [0, 1].map(|end| self.drivers[end].terms())
    }
}

#[test]
fn end_that_is_alone_asks_every_five_seconds() {
    let mut ends = Ends::new([MTU; 2]);
    assert_eq!(ends.states(), [State::StartWait; 2]);
    assert!(ends.connectors[0].is_coming_up(0));
    ends.ask(0, 0);
    assert_eq!(ends.states()[0], State::SetupWait);
    assert!(ends.connectors[0].is_coming_up(SECOND));
    ends.connectors[0].unconnected(SECOND, Unconnected::Absent);
    assert!(!ends.connectors[0].is_coming_up(SECOND));
    // One that was not there is not waited for with the next request.
    assert!(!ends.connectors[0].is_coming_up(5 * SECOND));
    assert_eq!(ends.states()[0], State::StartWait);
    assert_eq!(ends.connectors[0].due(), Some(5 * SECOND));
    assert_eq!(ends.poll(0, 5 * SECOND - 1), None);
    ends.ask(0, 5 * SECOND);
    // Nobody answers at all.
    assert_eq!(ends.poll(0, 10 * SECOND - 1), None);
    assert_eq!(ends.poll(0, 10 * SECOND), Some(Act::Withdraw));
    ends.ask(0, 10 * SECOND);
    ends.connectors[0].unconnected(11 * SECOND, Unconnected::NotAllowed);
    assert_eq!(ends.states()[0], State::ConnectError);
    ends.ask(0, 15 * SECOND);
    assert_eq!(ends.drivers[0].counter(Counter::Connects), 4);
    assert_eq!(ends.drivers[0].counter(Counter::ConnectsTimedOut), 1);
}

#[test]
fn request_of_the_partner_is_accepted() {
    let mut ends = Ends::new([MTU; 2]);
    let data = ends.ask(0, 0);
    ends.accept(1, 0, data);
    assert_eq!(ends.states(), [State::Idle; 2]);
    assert_eq!(ends.terms(), [Some(Terms::NETIUCV); 2]);
    assert_eq!(ends.connectors[0].due(), None);
    // One is enough.
    assert_eq!(ends.requested(0, data), Answer::Refuse);
    assert_eq!(ends.drivers[0].counter(Counter::RequestsRefused), 1);
    ends.drivers[0].sent_one(0, 20);
    assert_eq!(ends.states(), [State::Tx, State::Idle]);
}

#[test]
fn of_two_requests_that_cross_one_counts() {
    let mut ends = Ends::new([MTU; 2]);
    let [first, second] = [0, 1].map(|end| ends.ask(end, 0));
    assert_eq!(ends.requested(0, second), Answer::Refuse);
    assert!(matches!(ends.requested(1, first), Answer::AcceptInstead(..)));
    ends.accept(1, 0, first);
    assert_eq!(ends.states(), [State::Idle; 2]);
}

#[test]
fn partner_that_goes_is_asked_again_but_not_without_end() {
    let mut ends = Ends::new([MTU; 2]);
    let data = ends.ask(0, 0);
    ends.accept(1, 0, data);
    ends.connectors[0].severed(SECOND, &mut ends.drivers[0]);
    assert_eq!((ends.states()[0], ends.terms()[0]), (State::StartWait, None));
    assert!(ends.connectors[0].is_coming_up(5 * SECOND));
    // It was asked a second ago.
    assert_eq!(ends.connectors[0].due(), Some(5 * SECOND));
    ends.connectors[1].severed(100 * SECOND, &mut ends.drivers[1]);
    assert_eq!(ends.connectors[1].due(), Some(100 * SECOND));
    ends.connectors[1].severed(100 * SECOND, &mut ends.drivers[1]);
    assert_eq!(ends.drivers[1].counter(Counter::Severed), 1);
}

#[test]
fn wide_framing_is_taken_if_both_ends_have_it() {
    let mut ends = Ends::new([1 << 20, 65_535]);
    let data = ends.ask(0, 0);
    ends.accept(1, 0, data);
    let [first, second] = ends.terms().map(Option::unwrap);
    assert_eq!(first.framing, Framing::Wide);
    assert_eq!((first.send_bytes_max, first.receive_bytes_max), (65_539, (1 << 20) + 4));
    assert_eq!((second.send_bytes_max, second.receive_bytes_max), ((1 << 20) + 4, 65_539));
    // One that has not answers that it has not.
    for asking in [0, 1] {
        let mut ends = Ends::new([1 << 20, MTU]);
        let data = ends.ask(asking, 0);
        ends.accept(1 - asking, 0, data);
        assert_eq!(ends.terms(), [Some(Terms::NETIUCV); 2]);
    }
}

#[test]
fn driver_that_refuses_what_it_does_not_know_is_asked_in_its_own_way() {
    let mut ends = Ends::new([1 << 20, MTU]);
    let plain = Greeting::new(None, None).data();
    let wide = Greeting::new(None, Connector::wide_bytes_max(1 << 20)).data();
    for (now, data) in [(0, wide), (5, wide), (10, plain), (15, plain), (20, wide), (25, wide)] {
        assert_eq!(ends.ask(0, now * SECOND), data, "{now}");
        ends.connectors[0].unconnected(now * SECOND, Unconnected::Refused);
    }
    assert_eq!(ends.ask(0, 30 * SECOND), plain);
    // It answers with what was not offered: that is no line.
    assert!(!ends.connectors[0].connected(30 * SECOND, wide, &mut ends.drivers[0]));
    assert_eq!(ends.terms()[0], None);
    assert_eq!(ends.ask(0, 35 * SECOND), plain);
    assert!(ends.connectors[0].connected(35 * SECOND, plain, &mut ends.drivers[0]));
    // Another partner may be there after that.
    ends.connectors[0].severed(40 * SECOND, &mut ends.drivers[0]);
    assert_eq!(ends.ask(0, 40 * SECOND), wide);
}

#[test]
fn refusal_that_passes_changes_no_framing() {
    let mut ends = Ends::new([1 << 20; 2]);
    ends.ask(0, 0);
    ends.connectors[0].unconnected(0, Unconnected::Refused);
    let data = ends.ask(0, 5 * SECOND);
    ends.accept(1, 5 * SECOND, data);
    assert_eq!(ends.terms().map(|terms| terms.unwrap().framing), [Framing::Wide; 2]);
    // What is refused, and accepted, and refused again, is not refused in a row.
    ends.connectors[0].severed(10 * SECOND, &mut ends.drivers[0]);
    assert_eq!(ends.ask(0, 10 * SECOND), data);
    ends.connectors[0].unconnected(10 * SECOND, Unconnected::Refused);
    assert_eq!(ends.ask(0, 15 * SECOND), data);
}

#[test]
fn connection_of_something_else_is_refused() {
    let mut ends = Ends::new([MTU; 2]);
    let other = Greeting::new(Some("other".parse().unwrap()), None).data();
    for data in [[0; 16], *b"0       0       ", other] {
        assert_eq!(ends.requested(0, data), Answer::Refuse);
    }
    ends.ask(0, 0);
    assert!(!ends.connectors[0].connected(0, other, &mut ends.drivers[0]));
    assert_eq!(ends.states()[0], State::StartWait);
    // What comes late changes nothing.
    assert!(!ends.connectors[0].connected(
        0,
        Greeting::new(None, None).data(),
        &mut ends.drivers[0]
    ));
    ends.connectors[0].unconnected(0, Unconnected::NotAllowed);
    assert_eq!(ends.states()[0], State::StartWait);
    // One that was not started takes nothing.
    let mut stopped = Connector::new(Greeting::new(None, None), true);
    let mut driver = Driver::new(MTU);
    assert_eq!(stopped.requested(0, Greeting::new(None, None).data(), &mut driver), Answer::Refuse);
    assert_eq!((stopped.due(), stopped.state(&driver)), (None, State::Stopped));
}

#[test]
fn partner_that_asks_and_ends_again_and_again_is_accepted_some_times_at_once_and_ten_times_a_second()
 {
    let data = Greeting::new(None, None).data();
    let mut connector = Connector::new(Greeting::new(None, None), true);
    let mut driver = Driver::new(MTU);
    connector.start(0);
    // The own request is never out: its time is not looked at.
    let mut is_accepted = |now| match connector.requested(now, data, &mut driver) {
        Answer::Refuse => false,
        Answer::Accept(_, terms) | Answer::AcceptInstead(_, terms) => {
            connector.accepted(terms, &mut driver);
            connector.severed(now, &mut driver);
            true
        }
    };
    assert_eq!((0..100).filter(|_| is_accepted(SECOND)).count(), 16);
    let later = (1..=1000).filter(|ms| is_accepted(SECOND + ms * 1_000_000)).count();
    assert_eq!(later, 10);
    assert_eq!((0..100).filter(|_| is_accepted(60 * SECOND)).count(), 16);
}
