use super::Channel::{Read, Write};
use super::*;

const SECOND: u64 = 1_000_000_000;

/// One end, and what it has asked for.
struct End {
    channels: Channels,
    driver: Driver,
}

impl End {
    fn start() -> End {
        let mut end = End { channels: Channels::new(), driver: Driver::new(1500) };
        assert_eq!(end.state(), State::Stopped);
        end.channels.start(0);
        assert_eq!(end.steps(0), [Step::Open]);
        assert_eq!(end.state(), State::SetupWait);
        end
    }

    /// An end whose path is there, and which has asked for extended mode on both channels.
    fn attached() -> End {
        let mut end = End::start();
        assert!(end.channels.attached(0));
        assert_eq!(end.steps(0), [Step::SetMode(Read), Step::SetMode(Write)]);
        end
    }

    /// An end that is up, with a READ outstanding.
    fn up() -> End {
        let mut end = End::attached();
        end.ended(0, Read, Ended::Done);
        end.ended(0, Write, Ended::Done);
        assert_eq!(end.steps(0), [Step::Read, Step::Greet]);
        end.ended(0, Write, Ended::Done);
        assert!(end.driver.terms().is_none() && end.steps(0).is_empty());
        assert!(!end.channels.read(0, &FIRST_BLOCK, &mut end.driver));
        assert_eq!((end.state(), end.channels.due()), (State::Idle, None));
        assert_eq!(end.steps(0), [Step::Read]);
        assert!(end.channels.may_send());
        end
    }

    /// What is to be done now, and is done.
    fn steps(&mut self, now: u64) -> Vec<Step> {
        let next = || {
            let step = self.channels.poll(now, &mut self.driver)?;
            self.channels.started(step);
            Some(step)
        };
        // An end that asks for ever is seen by the number.
        std::iter::from_fn(next).take(10).collect()
    }

    fn ended(&mut self, now: u64, channel: Channel, ended: Ended) {
        self.channels.ended(now, channel, ended, &mut self.driver);
    }

    fn state(&self) -> State {
        self.channels.state(&self.driver)
    }
}

#[test]
fn line_is_up_when_both_channels_have_moved_a_block() {
    let end = End::up();
    assert_eq!(end.driver.terms(), Some(Terms::ctcm(1500)));
    assert_eq!(end.driver.counter(Counter::Connected), 1);
}

#[test]
fn write_that_ends_as_none_does_loses_its_packets_and_the_next_goes() {
    let mut end = End::up();
    end.driver.sent_one(0, 100);
    end.channels.sending();
    assert_eq!(end.state(), State::Tx);
    end.ended(0, Write, Ended::EndOfFile);
    assert_eq!((end.state(), end.channels.may_send()), (State::Idle, true));
    assert_eq!(end.driver.counter(Counter::DroppedLost), 1);
}

#[test]
fn program_that_is_not_accepted_costs_the_path() {
    let mut end = End::up();
    end.channels.refused();
    assert_eq!(end.steps(0)[0], Step::Detach);
}

#[test]
fn peer_that_comes_later_is_told_by_an_interruption() {
    let mut end = End::attached();
    assert!(end.channels.is_coming_up(0, &end.driver));
    for channel in [Read, Write] {
        end.ended(0, channel, Ended::Check);
    }
    assert!(end.steps(5 * SECOND - 1).is_empty());
    assert_eq!((end.state(), end.channels.due()), (State::StartWait, Some(CONNECT_NS)));
    assert!(!end.channels.is_coming_up(0, &end.driver), "packets are not kept for nobody");
    end.channels.interrupted(SECOND, Write);
    assert_eq!(end.steps(SECOND), [Step::SetMode(Write)]);
    // An interruption that says nothing new starts nothing.
    end.channels.interrupted(SECOND, Write);
    assert!(end.steps(SECOND).is_empty());
    // The other is asked again in any case.
    assert_eq!(end.steps(5 * SECOND), [Step::SetMode(Read)]);
    end.ended(6 * SECOND, Write, Ended::Done);
    assert_eq!(end.steps(6 * SECOND), [Step::Greet]);
}

#[test]
fn mode_that_the_peer_has_set_is_not_set_again() {
    let mut end = End::attached();
    end.ended(0, Read, Ended::Collided);
    end.ended(0, Write, Ended::Collided);
    assert_eq!(end.steps(0), [Step::Read, Step::Greet]);
}

#[test]
fn peer_that_does_not_greet_in_time_costs_the_path_and_the_next_is_not_sooner() {
    let mut end = End::attached();
    end.ended(SECOND, Read, Ended::Done);
    end.ended(SECOND, Write, Ended::Done);
    assert_eq!(end.steps(SECOND), [Step::Read, Step::Greet]);
    assert_eq!(end.channels.due(), Some(CONNECT_NS));
    assert!(end.steps(CONNECT_NS - 1).is_empty());
    assert_eq!(end.channels.poll(CONNECT_NS, &mut end.driver), Some(Step::Detach));
    end.channels.detached(CONNECT_NS, &mut end.driver);
    assert_eq!(end.driver.counter(Counter::ConnectsTimedOut), 1);
    assert_eq!(end.steps(CONNECT_NS), [Step::Open]);
    end.channels.unopened(CONNECT_NS, Unconnected::NotAllowed);
    assert_eq!((end.state(), end.channels.due()), (State::ConnectError, Some(2 * CONNECT_NS)));
    assert!(!end.channels.attached(CONNECT_NS), "nobody asks");
}

#[test]
fn request_that_is_not_answered_is_taken_back() {
    let mut end = End::start();
    assert!(end.steps(CONNECT_NS - 1).is_empty());
    assert_eq!(end.channels.poll(CONNECT_NS, &mut end.driver), Some(Step::Withdraw));
    assert_eq!(end.state(), State::StartWait);
    assert_eq!(end.steps(CONNECT_NS), [Step::Open]);
}

#[test]
fn blocks_are_read_and_written_while_the_line_is_up() {
    let mut end = End::up();
    let message = [0, 9, 0, 7, 8, 0, 0, 0, 0x45];
    assert!(end.channels.read(0, &message, &mut end.driver));
    assert_eq!(end.steps(0), [Step::Read]);
    end.driver.sent_one(0, 1);
    end.channels.sending();
    assert_eq!((end.state(), end.channels.may_send()), (State::Tx, false));
    end.ended(7, Write, Ended::Done);
    assert_eq!((end.state(), end.driver.counter(Counter::SendingNs)), (State::Idle, 7));
    // The end of a file says nothing.
    end.ended(7, Read, Ended::EndOfFile);
    assert_eq!((end.steps(7), end.state()), (vec![Step::Read], State::Idle));
}

#[test]
fn reset_of_the_peer_takes_the_line_down_and_both_channels_begin_anew() {
    let mut end = End::up();
    end.driver.sent_one(0, 1);
    end.channels.sending();
    end.ended(1, Read, Ended::Check);
    assert!(end.driver.terms().is_none());
    assert_eq!(end.driver.counter(Counter::DroppedLost), 1);
    // The WRITE ends by itself, because the peer was reset there, too.
    assert_eq!(end.steps(1), [Step::SetMode(Read)]);
    end.ended(1, Read, Ended::Check);
    end.ended(1, Write, Ended::Check);
    assert_eq!(end.steps(1), [Step::SetMode(Write)]);
    end.ended(1, Write, Ended::Check);
    for channel in [Read, Write] {
        end.channels.interrupted(2, channel);
    }
    assert_eq!(end.steps(2), [Step::SetMode(Read), Step::SetMode(Write)]);
    end.ended(2, Read, Ended::Done);
    end.ended(2, Write, Ended::Done);
    assert_eq!(end.steps(2), [Step::Read, Step::Greet]);
    assert!(!end.channels.read(2, &FIRST_BLOCK, &mut end.driver));
    end.ended(2, Write, Ended::Done);
    assert_eq!((end.state(), end.driver.counter(Counter::Connected)), (State::Idle, 2));
}

#[test]
fn first_block_while_the_line_is_up_means_that_the_peer_begins_anew() {
    let mut end = End::up();
    assert!(!end.channels.read(CONNECT_NS, &FIRST_BLOCK, &mut end.driver));
    assert_eq!(end.steps(CONNECT_NS), [Step::SetMode(Write)]);
    end.ended(CONNECT_NS, Write, Ended::Done);
    assert_eq!(end.steps(CONNECT_NS), [Step::Greet]);
    end.ended(CONNECT_NS, Write, Ended::Done);
    assert_eq!((end.state(), end.steps(CONNECT_NS)), (State::Idle, vec![Step::Read]));
    // One that does so again and again costs the path.
    assert!(!end.channels.read(2 * CONNECT_NS - 1, &FIRST_BLOCK, &mut end.driver));
    assert_eq!(end.channels.poll(2 * CONNECT_NS - 1, &mut end.driver), Some(Step::Detach));
}

#[test]
fn peer_that_was_greeted_just_before_it_was_reset_is_greeted_again() {
    // The WRITE of the first block met a READ of the peer before.
    let greeted = || {
        let mut end = End::attached();
        end.ended(0, Write, Ended::Done);
        assert_eq!(end.steps(0), [Step::Greet]);
        end
    };
    // The other channel finds the peer gone before that WRITE has ended, and after.
    let mut before = greeted();
    before.ended(0, Read, Ended::Check);
    before.ended(0, Write, Ended::Done);
    before.channels.interrupted(1, Read);
    assert_eq!(before.steps(1), [Step::SetMode(Read), Step::SetMode(Write)]);
    let mut after = greeted();
    after.ended(0, Write, Ended::Done);
    after.ended(0, Read, Ended::Check);
    assert_eq!(after.steps(0), [Step::SetMode(Write)]);
}

#[test]
fn peer_that_breaks_the_rules_costs_the_path() {
    for (channel, ended) in [(Write, Ended::Done), (Read, Ended::Collided), (Read, Ended::Other)] {
        let mut end = End::up();
        end.ended(0, channel, ended);
        assert_eq!(end.channels.poll(0, &mut end.driver), Some(Step::Detach), "{ended:?}");
        end.channels.detached(0, &mut end.driver);
        assert_eq!((end.state(), end.channels.due()), (State::StartWait, Some(CONNECT_NS)));
        assert!(end.driver.terms().is_none());
    }
}

#[test]
fn too_short_a_first_block_is_none() {
    let mut end = End::attached();
    end.ended(0, Read, Ended::Done);
    assert_eq!(end.steps(0), [Step::Read]);
    for block in [&[][..], &[0], &[0, 1]] {
        assert!(!end.channels.read(0, block, &mut end.driver));
        assert_eq!(end.steps(0), [Step::Read]);
    }
    // A peer without the exchange of first blocks begins with packets.
    assert!(!end.channels.read(0, &[0, 9, 0, 7, 8, 0, 0, 0, 0x45], &mut end.driver));
    assert!(end.steps(0).is_empty());
}

#[test]
fn whatever_happens_an_end_starts_no_program_on_a_channel_that_has_one() {
    let seed = std::env::var("SIGA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for round in 0..200 {
        let mut end = End::attached();
        let mut runs = [true; 2];
        let mut now = 0;
        for _ in 0..200 {
            now += random(CONNECT_NS / 4);
            let channel = [Read, Write][random(2) as usize];
            let is_running = runs[channel as usize];
            match random(4) {
                0 => end.channels.interrupted(now, channel),
                1 if is_running && channel == Read && random(2) == 0 => {
                    runs[Read as usize] = false;
                    let block = [&FIRST_BLOCK[..], &[0, 9, 1], &[0]][random(3) as usize];
                    // A program that sets the mode reads nothing.
                    let is_mode = end.channels.stages[Read as usize] == Stage::Mode;
                    match is_mode {
                        true => end.ended(now, Read, Ended::Done),
                        false => drop(end.channels.read(now, block, &mut end.driver)),
                    }
                }
                1 if is_running => {
                    runs[channel as usize] = false;
                    let how = [Ended::Done, Ended::Check, Ended::Check, Ended::EndOfFile];
                    end.ended(now, channel, how[random(4) as usize]);
                }
                2 if end.channels.may_send() && end.driver.terms().is_some() => {
                    assert!(!runs[Write as usize], "seed {seed}, round {round}");
                    end.driver.sent_one(now, 1);
                    end.channels.sending();
                    runs[Write as usize] = true;
                }
                _ => {}
            }
            for step in end.steps(now) {
                let channel = match step {
                    Step::SetMode(channel) => channel,
                    Step::Read => Read,
                    Step::Greet => Write,
                    Step::Detach => {
                        end.channels.detached(now, &mut end.driver);
                        runs = [false; 2];
                        continue;
                    }
                    Step::Open => {
                        assert!(end.channels.attached(now));
                        continue;
                    }
                    Step::Withdraw => continue,
                };
                assert!(!runs[channel as usize], "seed {seed}, round {round}: {step:?}");
                runs[channel as usize] = true;
            }
        }
    }
}
