//! A guest, a channel and a control unit in one thread, with every path between them.

pub mod programs;
pub mod reads;
pub mod writes;

use std::io;
use std::sync::{Arc, Mutex};

use channel::client::{Client, Event};
use channel::exchange::pair;
use channel::{Channel, Guests};
use disk::ckd::backing::{Backing, Simulated};
use disk::ckd::header::Header;
use disk::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, HEADS, TRACK_BYTES, track_of};
use disk::ckd::track;
use disk::ckd::volume::{Access, Volume};
use disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use disk::format::orb::{ALL_PATHS, Orb, OrbFlags};
use disk::program::blocks::{Blocks, Mode, Verb, build};
use disk::unit::Unit;
use disk::unit::usage::VolumeUse;
use fabric::path::{Receiver, Sender, Shape, Side, Terms};
use os::doorbell::Doorbell;
use os::storage::StorageOptions;

/// A simulated disk that the test can look at while a volume has it.
#[derive(Clone, Debug)]
pub struct Disk(pub Arc<Mutex<Simulated>>);

impl Backing for Disk {
    fn bytes(&self) -> io::Result<u64> {
        self.0.lock().unwrap().bytes()
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().read_at(target, offset)
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().write_at(source, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().sync()
    }
}

impl Disk {
    pub fn new(bytes: Vec<u8>) -> Disk {
        Disk(Arc::new(Mutex::new(Simulated::new(bytes))))
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }
}

/// The content of a block: it says which it is.
pub fn block(number: u64, seed: u8) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (at as u64 * 7 + number * 131) as u8 ^ seed).collect()
}

/// A volume of so many cylinders, all of it blocks of seed 0.
pub fn image(cylinders: u32) -> Vec<u8> {
    let mut bytes = Header::default().emit().to_vec();
    let mut content = vec![0; TRACK_BYTES];
    for number in 0..cylinders * HEADS {
        track::clear(&mut content, track_of(number));
        for record in 0..BLOCKS_PER_TRACK {
            let index = u64::from(number * BLOCKS_PER_TRACK + record);
            track::append(&mut content, track_of(number), &[], &block(index, 0)).unwrap();
        }
        bytes.extend(&content);
    }
    bytes
}

/// One side of every guest's path.
pub struct Sides(pub Vec<Option<(Sender, Receiver)>>);

impl Guests for Sides {
    fn halves(&mut self, guest: usize) -> Option<(&mut Sender, &mut Receiver)> {
        self.0.get_mut(guest)?.as_mut().map(|(sender, receiver)| (sender, receiver))
    }
}

/// Both ends of a path.
pub fn path() -> ((Sender, Receiver), (Sender, Receiver)) {
    let terms =
        Terms { storage_bytes_max: 1 << 30, peer_storage_bytes_max: 1 << 30, ..Terms::DEFAULT };
    let (left, left_shown) = Side::create(Shape::SIMPLE).unwrap();
    let (right, right_shown) = Side::create(Shape::SIMPLE).unwrap();
    let (mut left_bells, mut right_bells) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (one, other) = Doorbell::ends().unwrap();
        left_bells.push(one);
        right_bells.push(other);
    }
    let mut left = left.join(right_shown, left_bells, terms).unwrap();
    let mut right = right.join(left_shown, right_bells, terms).unwrap();
    (
        (left.senders.remove(0), left.receivers.remove(0)),
        (right.senders.remove(0), right.receivers.remove(0)),
    )
}

/// All parties.
pub struct World {
    pub unit: Unit,
    pub channel: Channel,
    pub sides: Sides,
    pub disk: Disk,
    pub now_ns: u64,
}

impl World {
    /// A control unit with one volume, and a cache of so many tracks.
    pub fn new(cylinders: u32, slots: usize) -> World {
        World::with(image(cylinders), slots)
    }

    pub fn with(bytes: Vec<u8>, slots: usize) -> World {
        let disk = Disk::new(bytes);
        World::over(disk.clone(), Box::new(disk), slots)
    }

    /// A world whose control unit reaches its disk by calls of something else.
    pub fn over(disk: Disk, backing: Box<dyn Backing>, slots: usize) -> World {
        World::serving(disk, Volume::from_backing(backing, Access::Write).unwrap(), slots)
    }

    /// A world whose control unit has this volume, which begins on the disk.
    pub fn serving(disk: Disk, volume: Volume, slots: usize) -> World {
        World::of(Unit::new(), disk, volume, slots)
    }

    /// A world with this control unit, which has no volume yet.
    pub fn of(mut unit: Unit, disk: Disk, volume: Volume, slots: usize) -> World {
        unit.add_volume(volume, slots * TRACK_BYTES, StorageOptions::default()).unwrap();
        let mut channel = Channel::new();
        let terms =
            Terms { storage_bytes_max: 1 << 32, peer_storage_bytes_max: 1 << 32, ..Terms::DEFAULT };
        for _ in 0..4 {
            let (ours, theirs) = pair(terms).unwrap();
            channel.add_link(ours);
            unit.add_link(theirs);
        }
        World { unit, channel, sides: Sides(Vec::new()), disk, now_ns: 0 }
    }

    /// A guest with these cylinders of the volume.
    pub fn guest(
        &mut self,
        first_cylinder: u32,
        cylinders: u32,
        may_write: bool,
        dedicated: bool,
    ) -> Guest {
        let cache = dedicated.then(|| self.unit.lendable(0).unwrap());
        let wish = VolumeUse { may_write, cache, ..wish(first_cylinder, cylinders, true) };
        let number = self.sides.0.len();
        self.sides.0.push(None);
        self.guest_at(number, wish)
    }

    /// A guest of this number, which nobody has now.
    pub fn guest_at(&mut self, number: usize, wish: VolumeUse) -> Guest {
        let (theirs, mut ours) = path();
        self.sides.0[number] = Some(theirs);
        let (sender, _) = self.sides.0[number].as_mut().unwrap();
        self.channel.attach(number, sender, wish).unwrap();
        let client = Client::new(16 << 20, &mut ours.0).unwrap();
        let mut guest = Guest { number, client, sender: ours.0, receiver: ours.1 };
        self.run();
        self.run();
        assert!(matches!(guest.poll(), Some(Event::Attached(_))));
        guest
    }

    /// A program of guest 0 runs to its end, if it needs no file.
    pub fn turn(&mut self) {
        let (sender, receiver) = self.sides.0[0].as_mut().unwrap();
        self.channel.poll_guest(0, sender, receiver, self.now_ns).unwrap();
        while self.unit.poll() {
            self.channel.poll_units(&mut self.sides, self.now_ns).unwrap();
        }
    }

    /// Everybody does what there is to do, again and again, as long as `end_one` ends something that is waited for.
    pub fn run_while(&mut self, mut end_one: impl FnMut() -> bool) {
        for _ in 0..10_000 {
            self.run();
            if !end_one() {
                return;
            }
        }
        panic!("without end");
    }

    /// Everybody does what there is to do.
    pub fn run(&mut self) {
        self.channel.repeat(&mut self.sides, self.now_ns);
        loop {
            self.now_ns += 1000;
            let mut found = false;
            for number in 0..self.sides.0.len() {
                let Some((sender, receiver)) = &mut self.sides.0[number] else { continue };
                match self.channel.poll_guest(number, sender, receiver, self.now_ns) {
                    Ok(polled) => found |= polled,
                    Err(_) => {
                        self.sides.0[number] = None;
                        self.channel.detach(number);
                    }
                }
            }
            found |= self.unit.poll();
            found |= self.channel.poll_units(&mut self.sides, self.now_ns).unwrap();
            if !found {
                break;
            }
        }
        self.channel.flush();
        self.unit.poll();
    }
}

/// A guest.
pub struct Guest {
    pub number: usize,
    pub client: Client,
    pub sender: Sender,
    pub receiver: Receiver,
}

impl Guest {
    pub fn poll(&mut self) -> Option<Event> {
        self.client.poll(&mut self.receiver).unwrap()
    }

    pub fn start(&mut self, subchannel: u16, orb: &Orb) {
        self.client.start(subchannel, orb, &mut self.sender).unwrap();
    }

    /// Runs a program to its end. Its data are placed.
    pub fn execute(&mut self, world: &mut World, orb: &Orb) -> disk::format::scsw::Scsw {
        self.start(0, orb);
        for _ in 0..1000 {
            world.run();
            match self.poll() {
                Some(Event::Ended { subchannel: 0, .. }) => {
                    self.client.place().unwrap();
                    return self.client.answer().scsw;
                }
                Some(Event::Intermediate { .. } | Event::Attention { .. }) | None => {}
                Some(event) => panic!("{event:?}"),
            }
        }
        panic!("no end");
    }
}

/// Where programs and their data are, unless a test puts them elsewhere.
pub const AT: u32 = 0;
pub const DATA: u32 = 0x10_0000;
pub const MODES: [Mode; 2] = [Mode::Command, Mode::Transport];

pub fn blocks(first: u64, count: u32) -> Blocks {
    Blocks { first_track: 0, first, count }
}

/// Reads blocks and compares them with what they must be.
pub fn read(
    world: &mut World,
    guest: &mut Guest,
    mode: Mode,
    first: u64,
    count: u32,
    content: impl Fn(u64) -> Vec<u8>,
) {
    let orb = build(guest.client.storage(), AT, DATA, mode, Verb::Read, blocks(first, count));
    let scsw = guest.execute(world, &orb);
    assert!(
        scsw.is_good(),
        "{mode:?} {first} {count}: {scsw:x?} {:?}",
        guest.client.answer().sense
    );
    for index in 0..u64::from(count) {
        let at = DATA as usize + index as usize * BLOCK_BYTES;
        let found = &guest.client.storage()[at..at + BLOCK_BYTES];
        assert!(found == content(first + index), "{mode:?}: block {}", first + index);
    }
}

/// A program of CCWs of format 1 at address 0x400, and how to start it.
pub fn ccws(guest: &mut Guest, ccws: &[(u8, u8, u16, u32)]) -> Orb {
    for (index, (command, flags, count, address)) in ccws.iter().enumerate() {
        let ccw =
            Ccw { command: *command, flags: CcwFlags(*flags), count: *count, address: *address };
        let at = 0x400 + index * 8;
        guest.client.storage()[at..at + 8].copy_from_slice(&ccw.emit(CcwFormat::One));
    }
    Orb {
        flags: OrbFlags::FORMAT_1,
        paths: ALL_PATHS,
        program: 0x400,
        parameter: 77,
        ..Orb::default()
    }
}

pub const CC: u8 = 0x40;
pub const SLI: u8 = 0x20;
pub const CC_SLI: u8 = CC | SLI;

/// The device still does what it did.
pub fn read_after(world: &mut World, guest: &mut Guest) {
    read(world, guest, Mode::Command, 7, 3, |number| block(number, 0));
}

/// Lets everybody work once.
pub fn round(world: &mut World) {
    for number in 0..world.sides.0.len() {
        let Some((sender, receiver)) = &mut world.sides.0[number] else { continue };
        world.channel.poll_guest(number, sender, receiver, 0).unwrap();
    }
    world.unit.poll();
    world.channel.poll_units(&mut world.sides, 0).unwrap();
}

/// The use of some cylinders of the first volume, with or without its cache.
pub fn wish(first_cylinder: u32, cylinders: u32, is_cached: bool) -> VolumeUse {
    VolumeUse {
        volume: 0,
        first_cylinder,
        cylinders,
        may_write: true,
        subchannels: 8,
        result_bytes: 1 << 20,
        is_cached,
        cache: None,
    }
}
