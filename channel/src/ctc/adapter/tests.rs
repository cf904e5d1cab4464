use proptest::prelude::*;

use super::Side::{Left, Right};
use super::*;
use crate::ctc::command::code;

const CE_DE: DeviceStatus = DeviceStatus(0x0c);
const CE: DeviceStatus = DeviceStatus(0x08);
const DE: DeviceStatus = DeviceStatus(0x04);
const UC: DeviceStatus = DeviceStatus(0x02);
const BUSY: DeviceStatus = DeviceStatus(0x10);
const BA: DeviceStatus = DeviceStatus(0x90);
const ATTENTION: DeviceStatus = DeviceStatus(0x80);
const NOTHING: DeviceStatus = DeviceStatus(0);

const STATES: [State; 6] =
    [State::Prepare, State::Control, State::Read, State::Write, State::Available, State::NotReady];

/// A code for each row of the table, and what the row is called.
const CODES: [(u8, &str); 14] = [
    (0xe3, "PREPARE"),
    (0x17, "CONTROL"),
    (0x02, "READ"),
    (0x0c, "READ BACKWARD"),
    (0x01, "WRITE"),
    (0x14, "SENSE COMMAND BYTE"),
    (0x81, "WRITE EOF"),
    (0x03, "NOP"),
    (0xc3, "SET EXTENDED MODE"),
    (0x43, "SET BASIC MODE"),
    (0x04, "SENSE ADAPTER STATE"),
    (0xe4, "SENSE ID"),
    (0xc4, "READ CONFIGURATION DATA"),
    (0x08, "invalid"),
];

/// An adapter with this state of the right side; the left side is available.
fn with_peer(state: State, is_extended: bool) -> Adapter {
    let mut adapter = Adapter::new();
    for side in [Left, Right] {
        adapter.command(side, code::NOP, Place::First);
        adapter.accept(side);
    }
    if is_extended {
        adapter.command(Left, code::SET_EXTENDED_MODE, Place::First);
        adapter.command(Left, code::SET_EXTENDED_MODE, Place::First);
    }
    let command = match state {
        State::Prepare => code::PREPARE,
        State::Control => code::CONTROL,
        State::Read => code::READ,
        State::Write => code::WRITE,
        State::Available => code::NOP,
        State::NotReady => {
            adapter.reset(Right, Reset::System);
            return adapter;
        }
    };
    adapter.command(Right, command, Place::First);
    adapter.accept(Left);
    assert_eq!((adapter.state(Right), adapter.state(Left)), (state, State::Available));
    assert_eq!(adapter.is_extended(), is_extended);
    adapter
}

/// What a command is to lead to: the response, and the states of both sides after it.
struct Expected {
    response: Response,
    own: State,
    peer: State,
}

fn ended(status: DeviceStatus) -> Expected {
    let response = Response { fate: Fate::Ended, status, peer: NOTHING };
    Expected { response, own: State::Available, peer: State::Available }
}

fn matched(peer: DeviceStatus) -> Expected {
    let response = Response { fate: Fate::Ended, status: CE_DE, peer };
    Expected { response, own: State::Available, peer: State::Available }
}

fn waits(own: State, status: DeviceStatus, peer: DeviceStatus) -> Expected {
    let response = Response { fate: Fate::Waits, status, peer };
    Expected { response, own, peer: State::Available }
}

fn moves() -> Expected {
    let response = Response { fate: Fate::Moves, status: CE_DE, peer: CE_DE };
    Expected { response, own: State::Available, peer: State::Available }
}

fn keeping(peer: State, expected: Expected) -> Expected {
    Expected { peer, ..expected }
}

/// The table in words, cell by cell. Quotations are from the document as it is restated (Hercules's `ctcadpt.c`, after IBM SA22-7203,
/// section 2.13, and SA22-7091, sections 2.13 and 3.15).
fn expected(name: &str, peer: State, is_extended: bool) -> Expected {
    use State::{Available, Control, NotReady, Prepare, Read, Write};
    // "Base mode treats [not ready] as A".
    let column = if peer == NotReady && !is_extended { Available } else { peer };
    match (name, column) {
        ("invalid", _) => keeping(peer, ended(UC)),
        // "SENSE ID, adapter state, RCD: always CE+DE, no state change"
        ("SENSE ADAPTER STATE" | "SENSE ID" | "READ CONFIGURATION DATA", _) => {
            keeping(peer, ended(CE_DE))
        }
        // "Any dependent command with peer N: unit check, own state -> A"
        (_, NotReady) => keeping(NotReady, ended(UC)),

        // "PREPARE, peer A: CE now, DE withheld until the peer issues a data/control command"
        ("PREPARE", Available) => keeping(peer, waits(Prepare, CE, NOTHING)),
        // "peer P: CE+DE and the peer's PREPARE is released"
        ("PREPARE", Prepare) => matched(DE),
        // "peer C/R/W: CE+DE at once (work is waiting)"
        ("PREPARE", Control | Read | Write) => keeping(peer, ended(CE_DE)),

        // "READ, READ BKW, peer W: transfer, CE+DE on both"
        ("READ" | "READ BACKWARD", Write) => moves(),
        // "peer P: start and wait, peer's PREPARE gets DE"
        ("READ" | "READ BACKWARD", Prepare) => waits(Read, NOTHING, DE),
        // "peer A: start, wait, raise ATTENTION at peer"
        ("READ" | "READ BACKWARD", Available) => keeping(peer, waits(Read, NOTHING, ATTENTION)),
        // "peer C or R: BA"
        ("READ" | "READ BACKWARD", Control | Read) => keeping(peer, ended(BA)),

        // "WRITE: mirror image (matches R)"; in basic mode WRITE EOF is a write.
        ("WRITE", Read) => moves(),
        ("WRITE", Prepare) => waits(Write, NOTHING, DE),
        ("WRITE", Available) => keeping(peer, waits(Write, NOTHING, ATTENTION)),
        ("WRITE", Control | Write) => keeping(peer, ended(BA)),

        // "CONTROL, peer P: CE, wait, release peer"
        ("CONTROL", Prepare) => waits(Control, CE, DE),
        // "peer A: wait + ATTENTION at peer"
        ("CONTROL", Available) => keeping(peer, waits(Control, NOTHING, ATTENTION)),
        // "peer C/R/W: BA"
        ("CONTROL", Control | Read | Write) => keeping(peer, ended(BA)),

        // "SENSE CMD BYTE, peer C: CE+DE and completes the peer's CONTROL"
        ("SENSE COMMAND BYTE", Control) => matched(CE_DE),
        // "otherwise CE+DE"
        ("SENSE COMMAND BYTE", _) => keeping(peer, ended(CE_DE)),

        // "WRITE EOF, peer R: CE+DE, peer's READ ends with unit exception"
        ("WRITE EOF", Read) => matched(DeviceStatus(0x0d)),
        // "peer A or P: CE+DE at once"
        ("WRITE EOF", Available) => keeping(peer, ended(CE_DE)),
        // And of PREPARE: "DE withheld until the peer issues a data/control command".
        ("WRITE EOF", Prepare) => matched(DE),
        // "peer C/W: BA"
        ("WRITE EOF", Control | Write) => keeping(peer, ended(BA)),

        // "NOP, SEM, SBM, peer A/P: CE+DE"
        ("NOP" | "SET EXTENDED MODE" | "SET BASIC MODE", Available | Prepare) => {
            keeping(peer, ended(CE_DE))
        }
        // "peer C/R/W: BA"
        ("NOP" | "SET EXTENDED MODE" | "SET BASIC MODE", Control | Read | Write) => {
            keeping(peer, ended(BA))
        }
        _ => panic!("{name} is no row"),
    }
}

#[test]
fn every_command_answers_in_every_state_of_the_peer_as_the_document_says() {
    for is_extended in [false, true] {
        for peer in STATES {
            for (code, name) in CODES {
                let name = match name {
                    "WRITE EOF" if !is_extended => "WRITE",
                    name => name,
                };
                let mut adapter = with_peer(peer, is_extended);
                let response = adapter.command(Left, code, Place::First);
                let expected = expected(name, peer, is_extended);
                let cell = format!("{name}, peer {peer:?}, extended {is_extended}");
                assert_eq!(response, expected.response, "{cell}");
                assert_eq!(adapter.state(Left), expected.own, "{cell}");
                assert_eq!(adapter.state(Right), expected.peer, "{cell}");
                // Attention is an interruption that is pending at the peer; what ends a command is none.
                let pending = if response.peer == ATTENTION { ATTENTION } else { NOTHING };
                assert_eq!(adapter.pending(Right), pending, "{cell}");
            }
        }
    }
}

#[test]
fn every_command_is_busy_while_the_side_works_or_an_interruption_is_pending() {
    // "Plus local 'working' X and 'interrupt pending' I, in which every new command gets BUSY".
    for is_extended in [false, true] {
        for working in [code::PREPARE, code::CONTROL, code::READ, code::WRITE] {
            for place in [Place::First, Place::Chained] {
                for (code, name) in CODES {
                    let mut adapter = with_peer(State::Available, is_extended);
                    adapter.command(Left, working, Place::First);
                    let before = adapter.clone();
                    let response = adapter.command(Left, code, place);
                    assert_eq!(response, ended(BUSY).response, "{name} behind {working:#x}");
                    assert_eq!(adapter.halves, before.halves, "{name} behind {working:#x}");
                }
            }
        }
        for calls in [code::CONTROL, code::READ, code::WRITE] {
            for (code, name) in CODES {
                let mut adapter = with_peer(State::Available, is_extended);
                adapter.command(Right, calls, Place::First);
                assert_eq!(adapter.pending(Left), ATTENTION);
                let response = adapter.command(Left, code, Place::First);
                assert_eq!(response, ended(BUSY).response, "{name} with attention for {calls:#x}");
                // Accepted, the interruption keeps nothing busy; nor does one that is pending in a chain.
                let mut chained = adapter.clone();
                assert_eq!((adapter.accept(Left), adapter.pending(Left)), (ATTENTION, NOTHING));
                let first = adapter.command(Left, code, Place::First);
                assert_ne!(first.status, BUSY, "{name}");
                assert_eq!(chained.command(Left, code, Place::Chained), first, "{name}");
            }
        }
    }
}

#[test]
fn reset_leaves_a_side_not_ready_and_ends_what_waits_at_the_peer() {
    // "HALT/CLEAR/system reset: own side -> N, peer that was working gets CE+DE+unit check".
    for is_extended in [false, true] {
        for peer in STATES {
            for (reset, sense) in [(Reset::Selective, 0x41), (Reset::System, 0x40)] {
                let mut adapter = with_peer(peer, is_extended);
                let found = adapter.reset(Left, reset);
                // PREPARE has channel end already.
                let status = match peer {
                    State::Prepare => DE.with(UC),
                    State::Control | State::Read | State::Write => CE_DE.with(UC),
                    State::Available | State::NotReady => NOTHING,
                };
                assert_eq!(found, status, "peer {peer:?}");
                assert_eq!(adapter.state(Left), State::NotReady);
                assert!(!adapter.state(Right).is_working());
                if status != NOTHING {
                    assert_eq!(adapter.sense(Right), sense);
                    // Sense is there once.
                    assert_eq!((adapter.take_sense(Right), adapter.take_sense(Right)), (sense, 0));
                }
            }
        }
    }
}

#[test]
fn reset_of_a_side_that_works_withdraws_its_command_and_its_attention() {
    for working in [code::PREPARE, code::CONTROL, code::READ, code::WRITE] {
        let mut adapter = with_peer(State::Available, true);
        adapter.command(Left, working, Place::First);
        assert_eq!(adapter.reset(Left, Reset::Selective), NOTHING);
        assert_eq!((adapter.pending(Right), adapter.waiting_code(Left)), (NOTHING, 0));
        // In extended mode the peer learns of the reset with its next command.
        adapter.command(Right, code::SET_EXTENDED_MODE, Place::First);
        assert_eq!((adapter.sense(Right), adapter.is_extended()), (0, true), "{working:#x}");
    }
}

#[test]
fn mode_that_one_side_has_set_is_lost_with_its_reset() {
    let mut adapter = with_peer(State::Available, true);
    adapter.reset(Left, Reset::System);
    assert!(!adapter.is_extended());
    let mut adapter = with_peer(State::Available, true);
    adapter.command(Right, code::SET_EXTENDED_MODE, Place::First);
    adapter.reset(Left, Reset::System);
    assert!(adapter.is_extended());
    adapter.command(Left, code::NOP, Place::First);
    adapter.command(Right, code::SET_BASIC_MODE, Place::First);
    assert!(!adapter.is_extended());
}

#[test]
fn side_that_was_refused_gets_device_end_when_its_peer_is_ready() {
    let mut adapter = with_peer(State::NotReady, true);
    assert_eq!(adapter.command(Left, code::WRITE, Place::First).status, UC);
    assert_eq!((adapter.sense(Left), adapter.pending(Left)), (0x40, NOTHING));
    // What does not depend on the peer does not make a side ready.
    for code in [code::SENSE_ID, code::SENSE, code::READ_CONFIGURATION] {
        adapter.command(Right, code, Place::First);
        assert_eq!(adapter.state(Right), State::NotReady);
    }
    adapter.command(Right, code::READ, Place::First);
    // Device end because the peer is ready, and attention because it waits for data.
    assert_eq!(adapter.accept(Left), DE.with(ATTENTION));
    assert_eq!(adapter.command(Left, code::WRITE, Place::First).fate, Fate::Moves);
    // It is owed once.
    adapter.reset(Right, Reset::System);
    adapter.command(Right, code::NOP, Place::First);
    assert_eq!(adapter.pending(Left), NOTHING);
}

#[test]
fn both_sides_that_were_reset_become_ready_by_their_first_commands() {
    let mut adapter = with_peer(State::NotReady, true);
    adapter.command(Left, code::SET_EXTENDED_MODE, Place::First);
    adapter.reset(Left, Reset::Selective);
    adapter.halves[Right as usize].is_extended = true;
    assert_eq!(adapter.command(Left, code::NOP, Place::First).status, UC);
    assert_eq!(adapter.command(Right, code::NOP, Place::First).status, CE_DE);
    adapter.accept(Left);
    assert_eq!(adapter.command(Left, code::NOP, Place::First).status, CE_DE);
}

#[test]
fn end_of_file_without_a_read_is_brought_by_the_next_read() {
    for peer in [State::Available, State::Prepare] {
        let mut adapter = with_peer(peer, true);
        adapter.command(Left, code::WRITE_END_OF_FILE, Place::First);
        if peer == State::Prepare {
            adapter.command(Left, code::WRITE, Place::First);
            assert_eq!(adapter.accept(Right), ATTENTION);
        }
        // A PREPARE for which it is there ends at once, and so leaves it.
        if peer == State::Available {
            assert_eq!(adapter.command(Right, code::PREPARE, Place::First), ended(CE_DE).response);
        }
        // Other commands leave it.
        adapter.command(Right, code::SENSE_ID, Place::First);
        let read = adapter.command(Right, code::READ, Place::First);
        assert_eq!((read.fate, read.status), (Fate::Ended, DeviceStatus(0x0d)));
        let fate = adapter.command(Right, code::READ, Place::First).fate;
        assert_eq!(fate, if peer == State::Prepare { Fate::Moves } else { Fate::Waits });
    }
}

#[test]
fn command_byte_is_that_of_the_command_that_waits() {
    for (state, code) in
        [(State::Prepare, 0xe3), (State::Control, 0x17), (State::Read, 0x02), (State::Write, 0x01)]
    {
        let adapter = with_peer(state, true);
        assert_eq!(adapter.waiting_code(Right), code);
    }
    assert_eq!(with_peer(State::Available, true).waiting_code(Right), 0);
    let mut adapter = with_peer(State::Write, true);
    adapter.reset(Right, Reset::Selective);
    assert_eq!(adapter.waiting_code(Right), 0, "0 after a reset");
}

#[test]
fn attention_is_withdrawn_when_the_command_that_called_has_ended() {
    let mut adapter = with_peer(State::Available, true);
    adapter.command(Left, code::WRITE, Place::First);
    assert_eq!(adapter.pending(Right), ATTENTION);
    // In a chain the peer's READ comes first.
    assert_eq!(adapter.command(Right, code::READ, Place::Chained).fate, Fate::Moves);
    assert_eq!(adapter.pending(Right), NOTHING);
    // One that comes with something else leaves it.
    adapter.command(Left, code::WRITE, Place::First);
    adapter.command(Right, code::SENSE_ID, Place::Chained);
    assert_eq!(adapter.pending(Right), ATTENTION);
}

proptest! {
    /// Any commands and resets in any order: at most one side waits for the other, but for PREPARE; and every command is answered.
    #[test]
    fn any_commands_leave_at_most_one_side_waiting(
        acts in prop::collection::vec((any::<bool>(), any::<u8>(), 0_u8..20, any::<bool>()), 0..200)
    ) {
        let mut adapter = Adapter::new();
        for (is_left, code, what, accepts) in acts {
            let side = if is_left { Left } else { Right };
            let was_working = adapter.state(side).is_working();
            match what {
                0 => { adapter.reset(side, Reset::Selective); }
                1 => { adapter.reset(side, Reset::System); }
                _ => {
                    let place = if what < 10 { Place::First } else { Place::Chained };
                    let response = adapter.command(side, code, place);
                    prop_assert_eq!(was_working && response.status != BUSY, false);
                    let waits = response.fate == Fate::Waits;
                    prop_assert_eq!(adapter.state(side).is_working(), waits || was_working);
                    prop_assert_eq!(waits && response.status.has(DE), false);
                    prop_assert_eq!(!waits && response.status == NOTHING, false);
                    prop_assert_eq!(adapter.waiting_code(side) != 0, adapter.state(side).is_working());
                    if response.status.has(UC) {
                        prop_assert!(adapter.sense(side) != 0);
                    }
                }
            }
            if accepts {
                adapter.accept(side);
                adapter.accept(side.peer());
            }
            let states = Side::BOTH.map(|side| adapter.state(side));
            prop_assert_eq!(states.iter().all(|state| state.is_working()), false, "{:?}", states);
        }
    }
}
