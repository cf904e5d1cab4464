//! `siga capture`: the frames of a LAN, or those that pass the port of an adapter, for Wireshark.

mod pcapng;
mod tapped;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use os::poller::wait_any;
use os::processor::now_ns;
use os::signals::HeldSignals;
use siga::lan::{Frame, Mac, complete_checksum};
use siga::{Guest, Name};

use self::pcapng::{Interface, Packet, Statistics, Writer};
use self::tapped::{Origin, Seen, Tapped};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::peer::attach_name;
use crate::socket::Socket;
use crate::top::seconds;

/// Capture the frames of a LAN, or those that pass the port of an adapter, into a file that Wireshark opens
///
/// Each member of the LAN is an interface of the file, and each frame is there once, at the member that sent it, with
/// a time in nanoseconds. Frames for which the capture is too slow are lost and counted; members are not slowed down. Segments that leave the
/// sender as one frame are one frame here. Ends with Ctrl-C. The system file says who may capture:
/// capture = ["SNIFFER"] of a [[lan]], or of an [osa.NAME]. Without a system file, SNIFFER may in a LAN, and every guest at an adapter. Needs no other rights.
///
/// Of an adapter the port is an interface, whose frames have a direction: inbound from the wire, outbound to it. Each guest that sends to another guest of the port is an
/// interface too. Frames that the adapter drops are there if they have come from the wire. The capture ends when the adapter does.
///
/// To watch: siga capture hs0 -w - | tshark -r -, or siga capture --osa OSA1 -w - | tshark -r -
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The LAN
    #[arg(required_unless_present = "osa", conflicts_with = "osa")]
    lan: Option<String>,
    /// Capture what passes the port of this adapter
    #[arg(long, value_name = "ADAPTER", value_parser = attach_name)]
    osa: Option<String>,
    /// Write to this file, in the format pcapng; - is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    file: String,
    /// End after this many frames
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, 0.05 to 3600
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Write the first bytes of each frame alone [default: all]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snap: Option<u32>,
    /// The name to attach under, in capital letters or small ones
    #[arg(long, default_value = "SNIFFER", value_parser = attach_name)]
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// Frames that are written before signals and the clock are looked at.
const FRAMES_PER_TURN: u32 = 256;

/// Interfaces of a file: a member that comes again and again with another address has no more.
const INTERFACES_MAX: usize = 4096;

/// Captures until it is to end.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { lan, osa, file, name, .. } = arguments;
    let is_standard = file == "-";
    if arguments.output.json && is_standard {
        let why = "--json prints to standard output, where the frames go";
        return Err(Outcome::Usage(format!("{why}: name a file for the frames with -w FILE")));
    }
    let signals = HeldSignals::hold().map_err(Outcome::no)?;
    let socket = arguments.socket.path()?;
    let guest = Guest::attach(&socket, name).map_err(Outcome::no)?;
    let capture = match (osa, lan) {
        (Some(adapter), _) => Tapped::at_port(guest, adapter, &socket)?,
        (None, lan) => Tapped::in_lan(guest, lan.as_deref().unwrap_or_default(), &socket)?,
    };
    let place = capture.place.clone();
    let target = if is_standard { "standard output" } else { file };
    let unwritten = |error: &io::Error| match error.kind() {
        ErrorKind::BrokenPipe => format!("{target} cannot be written: nobody reads it any more"),
        _ => format!("{target} cannot be written: {error}"),
    };
    let opened = if is_standard {
        io::stdout().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::create(file)
    };
    let opened = opened.map_err(|error| Outcome::No(unwritten(&error)))?;
    let mut recording =
        Recording::new(arguments.snap, opened).map_err(|error| Outcome::No(unwritten(&error)))?;
    if !arguments.output.json {
        say(format_args!("siga: capturing {place} as {name}; Ctrl-C ends it"));
    }
    let end = Limits {
        count: arguments.count.unwrap_or(u64::MAX),
        deadline_ns: arguments.seconds.map(|seconds| now_ns() + (seconds * 1e9) as u64),
    };
    let ended = recording.record(capture, &signals, end);
    let summary = recording.summary(place);
    let ended = ended.map_err(|error| match error {
        Failure::Unwritten(error) => {
            Outcome::No(format!("{}; {}", unwritten(&error), summary.sentence()))
        }
        Failure::Over(why) => Outcome::No(format!("{why}; {}", summary.sentence())),
        Failure::Unheard(error) => Outcome::no(error),
    });
    if arguments.output.json {
        let printed = print_json(&summary);
        return ended.and(printed);
    }
    ended.inspect(|()| say(format_args!("siga: {}", summary.sentence())))
}

/// When to end.
#[derive(Clone, Copy, Debug)]
struct Limits {
    count: u64,
    deadline_ns: Option<u64>,
}

/// The reason for which a capture ended early.
enum Failure {
    Unwritten(io::Error),
    /// What is captured is there no longer.
    Over(String),
    /// The kernel does not let us wait.
    Unheard(io::Error),
}

/// What is captured, as `--json` names it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Place {
    Lan(String),
    Adapter(String),
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Lan(name) | Place::Adapter(name) => formatter.pad(name),
        }
    }
}

/// A capture that is being written.
struct Recording {
    writer: Writer<File>,
    /// Standard output or a named pipe, whose reader may go while nothing is to be written.
    pipe: Option<File>,
    snap: Option<u32>,
    clock: Clock,
    sources: BTreeMap<(Name, Option<Mac>), Source>,
    packets: u64,
}

/// A member whose frames are captured.
#[derive(Debug)]
struct Source {
    interface: u32,
    packets: u64,
    lost: u64,
    /// Of these, how many since the last packet.
    lost_since: u64,
}

/// The result of a capture, as `--json` prints it at the end.
#[derive(Debug, serde::Serialize)]
struct Summary {
    #[serde(flatten)]
    place: Place,
    packets: u64,
    lost: u64,
    members: Vec<MemberSummary>,
}

#[derive(Debug, serde::Serialize)]
struct MemberSummary {
    guest: String,
    /// None of the port of an adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    packets: u64,
    lost: u64,
}

impl Recording {
    fn new(snap: Option<u32>, output: File) -> io::Result<Recording> {
        let pipe = match output.metadata() {
            Ok(metadata) if metadata.file_type().is_fifo() => Some(output.try_clone()?),
            _ => None,
        };
        let program = concat!("siga ", env!("CARGO_PKG_VERSION"));
        let writer = Writer::new(output, program)?;
        let sources = BTreeMap::new();
        Ok(Recording { writer, pipe, snap, clock: Clock::now(), sources, packets: 0 })
    }

    /// Records until a limit is reached, or a signal asks for the end.
    fn record(
        &mut self,
        mut capture: Tapped,
        signals: &HeldSignals,
        limits: Limits,
    ) -> Result<(), Failure> {
        // A quiet member is an interface too.
        for from in capture.sources() {
            self.source(&from).map_err(Failure::Unwritten)?;
        }
        self.writer.flush().map_err(Failure::Unwritten)?;
        let ended = self.record_frames(&mut capture, signals, limits);
        // Whoever reads what was written before a failure knows how much is missing.
        let finished = self.finish();
        ended.and(finished.map_err(Failure::Unwritten))
    }

    fn record_frames(
        &mut self,
        capture: &mut Tapped,
        signals: &HeldSignals,
        limits: Limits,
    ) -> Result<(), Failure> {
        loop {
            let is_idle = self.record_turn(capture, limits.count)?;
            if signals.take().map_err(Failure::Unheard)?.is_some() || self.packets >= limits.count {
                return Ok(());
            }
            let now = now_ns();
            let left_ns = limits.deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now));
            if left_ns == Some(0) {
                return Ok(());
            }
            if !is_idle {
                continue;
            }
            self.writer.flush().map_err(Failure::Unwritten)?;
            if !capture.prepare_wait() {
                continue;
            }
            let pipe: Option<BorrowedFd<'_>> = self.pipe.as_ref().map(File::as_fd);
            let waited_for = [Some(capture.as_fd()), Some(signals.as_fd()), pipe];
            let waited = wait_any(waited_for, left_ns.map(Duration::from_nanos));
            let [_, _, is_closed] = waited.map_err(Failure::Unheard)?;
            // A pipe for writing is never readable: its reader has gone.
            if is_closed {
                return Err(Failure::Unwritten(ErrorKind::BrokenPipe.into()));
            }
        }
    }

    /// Writes what there is, for a turn. Whether there is nothing more.
    fn record_turn(&mut self, capture: &mut Tapped, count: u64) -> Result<bool, Failure> {
        for _ in 0..FRAMES_PER_TURN {
            let Some(seen) = capture.try_receive()? else { return Ok(true) };
            self.put(seen).map_err(Failure::Unwritten)?;
            if self.packets >= count {
                break;
            }
        }
        Ok(false)
    }

    /// Writes a frame.
    fn put(&mut self, seen: Seen<'_>) -> io::Result<()> {
        let time_ns = self.clock.since_1970(seen.time_ns);
        let source = self.source(&seen.from)?;
        // A member may say any number.
        source.lost = source.lost.saturating_add(seen.lost);
        source.lost_since = source.lost_since.saturating_add(seen.lost);
        let Some(frame) = seen.frame else { return Ok(()) };
        source.packets += 1;
        let (interface, lost) = (source.interface, std::mem::take(&mut source.lost_since));
        self.packets += 1;
        let kept_bytes_max = self.snap.map_or(usize::MAX, |snap| snap as usize);
        let packet = Packet { interface, time_ns, kept_bytes_max, lost, direction: seen.direction };
        self.writer.packet(packet, |room| put_whole(frame, room))
    }

    /// Who sends, which is given an interface if it has none.
    fn source(&mut self, from: &Origin<'_>) -> io::Result<&mut Source> {
        let mut key = (from.name, from.mac);
        if self.sources.len() >= INTERFACES_MAX && !self.sources.contains_key(&key) {
            // One that it had before, or anybody's: they are many for a reason.
            let of_name = (key.0, None)..;
            let known = self.sources.range(of_name).chain(&self.sources).next();
            key = known.map_or(key, |(known, _)| *known);
        }
        match self.sources.entry(key) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let interface =
                    Interface { name: from.name.to_string(), about: from.about(), mac: from.mac };
                let interface = self.writer.interface(&interface, self.snap.unwrap_or(0))?;
                Ok(place.insert(Source { interface, packets: 0, lost: 0, lost_since: 0 }))
            }
        }
    }

    /// Ends the file.
    fn finish(&mut self) -> io::Result<()> {
        let (start_ns, end_ns) = (self.clock.start_ns, self.clock.since_1970(now_ns()));
        for source in self.sources.values() {
            let received = source.packets.saturating_add(source.lost);
            let statistics = Statistics { start_ns, end_ns, received, lost: source.lost };
            self.writer.statistics(source.interface, statistics)?;
        }
        self.writer.flush()
    }

    fn summary(&self, place: Place) -> Summary {
        let members = self.sources.iter().map(|((guest, mac), source)| MemberSummary {
            guest: guest.to_string(),
            mac: mac.map(|mac| mac.to_string()),
            packets: source.packets,
            lost: source.lost,
        });
        let members: Vec<MemberSummary> = members.collect();
        let lost = members.iter().fold(0, |sum: u64, member| sum.saturating_add(member.lost));
        Summary { place, packets: self.packets, lost, members }
    }
}

impl Summary {
    fn sentence(&self) -> String {
        let Summary { packets, lost, members, .. } = self;
        let losers = members.iter().filter(|member| member.lost > 0);
        let losers: Vec<String> =
            losers.map(|member| format!("{} of {}", member.lost, member.guest)).collect();
        match losers.is_empty() {
            true => format!("{packets} frames were captured, none was lost"),
            false => {
                format!("{packets} frames were captured, {lost} were lost: {}", losers.join(", "))
            }
        }
    }
}

/// Appends the frame as it would be on a wire: with its checksum, and its VLAN tag.
fn put_whole(Frame { offload, bytes }: Frame<'_>, room: &mut Vec<u8>) {
    let from = room.len();
    room.extend_from_slice(bytes);
    complete_checksum(offload.checksum, &mut room[from..]);
    if let Some(tag) = offload.vlan {
        let [high, low] = tag.to_be_bytes();
        let [type_high, type_low] = VLAN_TYPE.to_be_bytes();
        // Behind the addresses; no frame is shorter.
        let at = from + ADDRESS_BYTES;
        room.splice(at..at, [type_high, type_low, high, low]);
    }
}

/// Where the tag of IEEE 802.1Q goes, and what it begins with.
const ADDRESS_BYTES: usize = 12;
const VLAN_TYPE: u16 = 0x8100;

/// The machine's clock and the time of day, read at once: the difference holds for the whole capture, so that a clock
/// that is set meanwhile changes no order.
#[derive(Clone, Copy, Debug)]
struct Clock {
    machine_ns: u64,
    /// Since 1970.
    start_ns: u64,
}

impl Clock {
    fn now() -> Clock {
        let machine_ns = now_ns();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { machine_ns, start_ns: since_1970.as_nanos() as u64 }
    }

    /// The time of day of a time that a member says, which may be any.
    fn since_1970(self, time_ns: u64) -> u64 {
        self.start_ns.wrapping_add(time_ns.wrapping_sub(self.machine_ns))
    }
}

#[cfg(test)]
mod tests {
    use siga::lan::{Checksum, Offload};

    use super::*;

    #[test]
    fn frame_is_written_with_its_checksum_and_its_tag() {
        // The checksum is of the bytes from 14 on, and is two bytes behind.
        let mut bytes = [0; 18];
        bytes[..14].copy_from_slice(b"ABCDEFabcdef\x88\xb5");
        bytes[14..].copy_from_slice(&[0x12, 0x34, 0, 0]);
        let checksum = Checksum::Partial { start: 14, at: 2 };
        let offload = Offload { checksum, vlan: Some(0x6007), ..Offload::NONE };
        let mut room = vec![1; 3];
        put_whole(Frame { offload, bytes: &bytes }, &mut room);
        assert_eq!(room, b"\x01\x01\x01ABCDEFabcdef\x81\x00\x60\x07\x88\xb5\x12\x34\xed\xcb");
        room.clear();
        put_whole(Frame { offload: Offload::NONE, bytes: &bytes }, &mut room);
        assert_eq!(room, bytes);
    }

    #[test]
    fn summary_names_who_has_lost() {
        let member = |guest: &str, packets, lost| MemberSummary {
            guest: guest.to_owned(),
            mac: None,
            packets,
            lost,
        };
        let members = vec![member("A", 5, 0), member("B", 2, 3)];
        let place = Place::Lan("hs0".to_owned());
        let summary = Summary { place, packets: 7, lost: 3, members };
        assert_eq!(summary.sentence(), "7 frames were captured, 3 were lost: 3 of B");
        let none = Summary { packets: 7, lost: 0, members: vec![member("A", 7, 0)], ..summary };
        assert_eq!(none.sentence(), "7 frames were captured, none was lost");
    }
}
