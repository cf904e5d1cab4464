use std::time::{Duration, Instant};

use host::Embedded;
use host::system::System;
use net::links::{Counter, State};
use os::processor::now_ns;

use super::*;
use crate::Wait;
use crate::guest::Guest;
use crate::line::{LineEnd, LineOptions};

/// How long a test waits for what has to come.
const LONG: Duration = Duration::from_secs(60);

fn line(host: &Embedded, is_left: bool) -> Line {
    let [name, partner] = if is_left { ["LEFT", "RIGHT"] } else { ["RIGHT", "LEFT"] };
    let [own, peer] = if is_left { [1, 2] } else { [2, 1] };
    let [address, peer_address] = [own, peer].map(|last| [10, 9, 0, last].into());
    let end = LineEnd { partner: partner.parse().unwrap(), address, peer_address };
    let options = LineOptions { wait: Wait::Block, ..LineOptions::default() };
    Line::new(Guest::attach_embedded(host, name).unwrap(), &end, &options).unwrap()
}

/// Asks again and again until there is an answer.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

fn bring_up(lines: [&mut Line; 2]) {
    let [left, right] = lines;
    until("the line is up", || {
        left.poll(now_ns()).unwrap();
        right.poll(now_ns()).unwrap();
        (left.state() == State::Idle && right.state() == State::Idle).then_some(())
    });
}

#[test]
fn partner_that_starts_again_is_accepted_though_nobody_has_noticed_the_end_of_its_path() {
    let host = Embedded::start(System::open()).unwrap();
    let mut left = line(&host, true);
    let mut right = line(&host, false);
    bring_up([&mut left, &mut right]);
    drop(right);
    let mut right = line(&host, false);
    // It asks. Both pieces of news are there before anybody looks.
    right.poll(now_ns()).unwrap();
    let pending = until("the request comes", || left.guest().pending());
    assert_eq!(left.state(), State::Idle);
    let refused = left.counter(Counter::RequestsRefused);
    left.answer(now_ns(), pending);
    assert_eq!(left.counter(Counter::RequestsRefused), refused);
    bring_up([&mut left, &mut right]);
    assert_eq!([Counter::Connected, Counter::Severed].map(|counter| left.counter(counter)), [2, 1]);
}

#[test]
fn second_request_of_a_partner_whose_line_is_up_is_refused() {
    let host = Embedded::start(System::open()).unwrap();
    let mut left = line(&host, true);
    let mut right = line(&host, false);
    bring_up([&mut left, &mut right]);
    let options = Options { data: [0; 16], ..right.path_options() }.below();
    let target = Target::Guest("LEFT".parse().unwrap());
    let _asking = right.guest().start_connecting_to(target, &options).unwrap();
    let pending = until("the request comes", || left.guest().pending());
    let refused = left.counter(Counter::RequestsRefused);
    left.answer(now_ns(), pending);
    assert_eq!(left.counter(Counter::RequestsRefused), refused + 1);
    assert_eq!((left.state(), left.counter(Counter::Severed)), (State::Idle, 0));
}
