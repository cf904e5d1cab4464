//! Any commands in any order on both sides of a line: no byte is lost or doubled, and nobody waits but for its peer.

#[expect(dead_code, reason = "the other tests use more of it")]
mod world;

use std::collections::VecDeque;

use channel::ctc::adapter::Side;
use channel::ctc::command::code;
use channel::ctc::line::{End, LineEvent, NOP, ccw, chained};
use channel::ctc::unit::{READ_SUBCHANNEL, WRITE_SUBCHANNEL};
use channel::format::ccw::{Ccw, CcwFlags};
use proptest::prelude::*;

use world::{Guest, World};

/// Bytes of a block: its first bytes say which it is.
const BLOCK_BYTES_MIN: u16 = 8;

/// Commands of a program at most, and the bytes that each has for its data.
const COMMANDS_MAX: usize = 8;
const PLACE_BYTES: usize = 256;

/// What a guest does.
#[derive(Clone, Debug)]
enum Act {
    /// A program of some commands, on a subchannel.
    Start {
        subchannel: u16,
        commands: Vec<u8>,
        bytes: u16,
        suppresses: bool,
    },
    Halt(u16),
    Clear(u16),
    /// The guest dies, and another one comes.
    Die,
    /// Everybody works until nobody has anything to do.
    Settle,
}

fn commands() -> impl Strategy<Value = Vec<u8>> {
    let any = prop_oneof![
        Just(code::READ),
        Just(code::WRITE),
        Just(code::PREPARE),
        Just(code::CONTROL),
        Just(code::NOP),
        Just(code::SENSE),
        Just(code::SENSE_ID),
        Just(code::SENSE_COMMAND_BYTE),
        Just(code::WRITE_END_OF_FILE),
        Just(code::SET_EXTENDED_MODE),
        Just(code::SET_BASIC_MODE),
        Just(0x0c),
        1..0xff_u8,
    ];
    prop_oneof![
        3 => Just(vec![code::PREPARE, code::READ, code::NOP]),
        3 => Just(vec![code::PREPARE, code::WRITE, code::NOP]),
        1 => Just(vec![code::SET_EXTENDED_MODE, code::NOP]),
        4 => prop::collection::vec(any, 1..5),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let subchannel = || READ_SUBCHANNEL..=WRITE_SUBCHANNEL;
    let start = (subchannel(), commands(), BLOCK_BYTES_MIN..200, prop::bool::weighted(0.9));
    prop_oneof![
        10 => start.prop_map(|(subchannel, commands, bytes, suppresses)| Act::Start { subchannel, commands, bytes, suppresses }),
        1 => subchannel().prop_map(Act::Halt),
        1 => subchannel().prop_map(Act::Clear),
        1 => Just(Act::Die),
        8 => Just(Act::Settle),
    ]
}

/// A program that a guest has started.
#[derive(Clone, Debug)]
struct Program {
    commands: Vec<u8>,
    /// The count of each.
    bytes: usize,
}

/// What a side of an adapter has written.
#[derive(Default)]
struct Written {
    /// Blocks that were not read, with their numbers, which are in their first bytes: that of the program, and which command it is.
    blocks: VecDeque<(u64, Vec<u8>)>,
}

struct Trial {
    world: World,
    guests: [Option<Guest>; 2],
    /// By side and subchannel.
    programs: [[Option<(u64, Program)>; 2]; 2],
    /// By adapter and side.
    written: [[Written; 2]; 2],
    serial: u64,
}

fn adapter_of(side: usize, subchannel: u16) -> usize {
    usize::from(subchannel) ^ side
}

impl Trial {
    fn new() -> Trial {
        let mut world = World::new(1);
        let guests = [Side::Left, Side::Right].map(|side| Some(world.guest(0, side)));
        Trial {
            world,
            guests,
            programs: Default::default(),
            written: Default::default(),
            serial: 0,
        }
    }

    fn act(&mut self, side: usize, act: &Act) {
        let guest = self.guests[side].as_mut().expect("there is one");
        match act {
            Act::Start { subchannel, commands, bytes, suppresses } => {
                if guest.line.is_running(*subchannel) {
                    return;
                }
                self.serial += 1;
                // Each subchannel has a half of both buffers, and each command a place in it.
                let half = u32::from(*subchannel) * 4096;
                let (from, to) =
                    (guest.line.write_address() + half, guest.line.read_address() + half);
                let written = &mut self.written[adapter_of(side, *subchannel)][side].blocks;
                for (at, _) in commands.iter().enumerate().filter(|(_, code)| *code & 0x03 == 0x01)
                {
                    let id = self.serial * COMMANDS_MAX as u64 + at as u64;
                    let mut block = vec![(id & 0xff) as u8; (*bytes).into()];
                    block[..8].copy_from_slice(&id.to_le_bytes());
                    let start = half as usize + at * PLACE_BYTES;
                    guest.line.write_buffer()[start..start + block.len()].copy_from_slice(&block);
                    written.push_back((id, block));
                }
                let flags = if *suppresses { CcwFlags::SUPPRESS_LENGTH } else { CcwFlags(0) };
                let last = commands.len() - 1;
                let program: Vec<Ccw> = commands
                    .iter()
                    .enumerate()
                    .map(|(at, command)| match *command {
                        code::NOP if *suppresses && at == last => NOP,
                        command => {
                            let is_write = command & 0x03 == 0x01;
                            let is_read = command & 0x03 == 0x02 || command & 0x0f == 0x04;
                            let address =
                                if is_write { from } else { to } + (at * PLACE_BYTES) as u32;
                            let count = if is_write || is_read { *bytes } else { 0 };
                            let one = chained(command, count, address);
                            if at == last { ccw(command, flags, count, address) } else { one }
                        }
                    })
                    .collect();
                guest.line.start(*subchannel, &program, &mut guest.sender).unwrap();
                let program = Program { commands: commands.clone(), bytes: (*bytes).into() };
                self.programs[side][usize::from(*subchannel)] = Some((self.serial, program));
            }
            Act::Halt(subchannel) => guest.line.halt(*subchannel, &mut guest.sender).unwrap(),
            Act::Clear(subchannel) => guest.line.clear(*subchannel, &mut guest.sender).unwrap(),
            Act::Die => {
                // What it has read by now is of no interest any more; what it has written can have been read.
                self.settle();
                let guest = self.guests[side].take().expect("there is one");
                self.world.kill(guest);
                self.programs[side] = Default::default();
                let line_side = Side::BOTH[side];
                self.guests[side] = Some(self.world.guest(0, line_side));
            }
            Act::Settle => self.settle(),
        }
    }

    /// Everybody works, and the guests take what has come.
    fn settle(&mut self) {
        self.world.run();
        let mut done = Vec::new();
        for side in 0..2 {
            while let Some(event) = self.guests[side].as_mut().expect("there is one").poll() {
                match event {
                    LineEvent::Ended { subchannel, end, .. } => {
                        let program = self.programs[side][usize::from(subchannel)].take();
                        let (serial, program) = program.expect("it was started");
                        self.take_read(side, subchannel, &program);
                        // In extended mode such a code is WRITE END OF FILE, which writes no block.
                        let may_write_none = |command: &u8| command & 0x83 == 0x81;
                        if end == End::Done && !program.commands.iter().any(may_write_none) {
                            done.push((side, subchannel, serial));
                        }
                    }
                    LineEvent::Interruption { .. } => {}
                    // There was nothing to halt.
                    LineEvent::Refused { code: 1, .. } => {}
                    event => panic!("{event:?}"),
                }
            }
        }
        for (side, subchannel, serial) in done {
            // A program that is done has written all of its blocks, and the peer has read them.
            let written = &self.written[adapter_of(side, subchannel)][side];
            let is_left = written.blocks.iter().any(|(of, _)| of / COMMANDS_MAX as u64 == serial);
            let peer = &self.programs[1 - side][usize::from(1 - subchannel)];
            // A chain of the peer can have read it and go on.
            let may_have = peer.as_ref().is_some_and(|(_, peer)| {
                peer.commands.len() > 1
                    && peer.commands.iter().any(|command| command & 0x03 == 0x02)
            });
            assert!(
                !is_left || may_have,
                "side {side}, subchannel {subchannel}: program {serial} was not read"
            );
        }
        // Whoever has not ended waits for the peer, and the peer does not.
        for (side, line_side) in Side::BOTH.into_iter().enumerate() {
            let guest = self.guests[side].as_ref().expect("there is one");
            for subchannel in [READ_SUBCHANNEL, WRITE_SUBCHANNEL] {
                let state = self.world.unit.state(0, line_side, subchannel).unwrap();
                assert_eq!(guest.line.is_running(subchannel), state.is_working(), "{state:?}");
                let peer = self.world.unit.state(0, line_side.peer(), 1 - subchannel).unwrap();
                assert!(!(state.is_working() && peer.is_working()), "{state:?} {peer:?}");
            }
        }
    }

    /// A program has ended: what it has read are blocks of the peer, each once and in order, and answers of the adapter itself.
    fn take_read(&mut self, side: usize, subchannel: u16, program: &Program) {
        let guest = self.guests[side].as_ref().expect("there is one");
        let all = guest.block();
        let reads = program.commands.iter().filter(|command| *command & 0x03 == 0x02);
        let are_others = program.commands.iter().any(|command| command & 0x0f == 0x04);
        if are_others || reads.count() != 1 {
            // Where one ends and the other begins is not said. The blocks were taken in some order: forget those that can be among them.
            self.forget_read(side, subchannel, &all);
            return;
        }
        if all.is_empty() {
            return;
        }
        let written = &mut self.written[adapter_of(side, subchannel)][1 - side].blocks;
        let id = u64::from_le_bytes(*all.first_chunk().expect("a block has 8 bytes"));
        // Blocks before it were not read, and are not read any more: programs of the writer that were halted, or collided.
        while written.front().is_some_and(|(of, _)| *of < id) {
            written.pop_front();
        }
        let (of, block) =
            written.pop_front().expect("a block that was written, and not read before");
        assert_eq!(
            (of, &all[..]),
            (id, &block[..block.len().min(program.bytes)]),
            "what was read is what was written"
        );
    }

    fn forget_read(&mut self, side: usize, subchannel: u16, all: &[u8]) {
        let written = &mut self.written[adapter_of(side, subchannel)][1 - side].blocks;
        written.retain(|(_, block)| {
            let start = &block[..8];
            !all.windows(8).any(|window| window == start)
        });
    }

    /// Whatever waits ends when it is halted.
    fn end(mut self) {
        self.settle();
        for guest in self.guests.iter_mut().flatten() {
            for subchannel in [READ_SUBCHANNEL, WRITE_SUBCHANNEL] {
                if guest.line.is_running(subchannel) {
                    guest.line.halt(subchannel, &mut guest.sender).unwrap();
                }
            }
        }
        self.settle();
        for guest in self.guests.iter().flatten() {
            for subchannel in [READ_SUBCHANNEL, WRITE_SUBCHANNEL] {
                assert!(!guest.line.is_running(subchannel));
            }
        }
    }
}

proptest! {
    #[test]
    fn any_commands_of_both_sides_lose_and_double_no_byte_and_hang_nobody(
        acts in prop::collection::vec((0..2_usize, act()), 1..80)
    ) {
        let mut trial = Trial::new();
        for (side, act) in &acts {
            trial.act(*side, act);
        }
        trial.end();
    }
}
