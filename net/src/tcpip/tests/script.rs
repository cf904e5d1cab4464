//! Conversations segment by segment, written down as text: what a side sends, and what the stack has to answer. What is expected
//! stands in the RFCs, and each script says in which.
//!
//! ```text
//! # Comment. Each script is run over IPv4 and IPv6; a segment has 1000 bytes at most if the script says so in its SYN.
//! set receive_bytes 4096             an option of the stack, before anything else
//! only 4, only 6                     the script is about one family of addresses
//! listen, listen 4                   at port 80, with room for one connection or more
//! connect, accept, nodelay, close, abort, shut        verbs of the program
//! write 1000                         so many bytes are taken from the program
//! read 1000                          so many have come, and no more; they are taken
//! eof, failed reset, failed pipe, failed refused, failed timed_out, alive        how it stands
//! < S 0:0 win 8000 mss 1000          the other side sends a segment
//! > S. 0:0 ack 1                     the stack has sent this one next
//! +0.2                               seconds pass
//! ports                              the other side takes another port, and both numbers begin anew
//! again                              the next SYN of the stack begins its numbers anew, at the same ports
//! ```
//!
//! Flags are S, F, R, P, U and `.` for ACK. Sequence numbers are counted from the first of each side, and `1:101` has 100 bytes
//! of data, whatever flags there are. What follows: `ack N`, `win N`, `mss N`, `wscale N`, `sackok`, `urg N`, `sack N:N`, `opt HEX`,
//! `times N:N` (value and echo, ours counted from our first), `offset N` (of the header, in words). What is not said of a sent segment may be anything, but for PSH its flags must be all.
//! Each segment that the stack sends must be expected before something else happens, or time passes.
//!
//! The scripts in which no time passes are also run against Linux (`cli/tests/scripts`), which does not say windows and lengths
//! of its own as we do: these are not compared. Where it does something else a script says `linux` and what.

use std::collections::VecDeque;

use self::line::{Line, number, scripts};
use super::*;

mod line;

/// Where the other side's numbers begin: they wrap soon.
const PEER_FIRST: u32 = u32::MAX - 150;

const PORT: u16 = 80;

/// A stack whose other side is a script.
struct Stage {
    now: u64,
    stack: Stack,
    wire: Wire,
    own: SocketAddr,
    peer: SocketAddr,
    id: Option<ConnectionId>,
    /// Where its clock begins, once it has said so.
    clock: Option<u32>,
    /// Where the stack's numbers begin, once it has sent a SYN.
    first: Option<u32>,
    /// How many bytes the program has read.
    read: usize,
    sent: VecDeque<Vec<u8>>,
}

impl Stage {
    fn new(family: usize, options: Options) -> Stage {
        let [peer, own]: [IpAddr; 2] = [["10.1.0.1", "10.1.0.2"], ["fd00::1", "fd00::2"]][family]
            .map(|at| at.parse().unwrap());
        let wire = Wire::new(1, Faults::default(), 1, true);
        Stage {
            now: 0,
            stack: Stack::new(MACS[1], &[own], options, Secret([5; 16])),
            wire,
            own: SocketAddr::new(own, PORT),
            peer: SocketAddr::new(peer, 1000),
            id: None,
            clock: None,
            first: None,
            read: 0,
            sent: VecDeque::new(),
        }
    }

    /// Has the stack send what there is to send.
    fn serve(&mut self) {
        while self.stack.poll(self.now, &mut self.wire) {}
        let frames = std::mem::take(&mut self.wire.under_way);
        self.sent.extend(frames.into_values().map(|(_, frame)| frame));
    }

    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while let Some(due) = self.stack.due().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.serve();
        }
        self.now = end;
        self.serve();
    }

    fn inject(&mut self, line: &Line) {
        let data = line.end.wrapping_sub(line.begin);
        let mut options = line.options.clone();
        if let Some((begin, end)) = line.sack {
            options.extend([1, 1, 5, 10]);
            let number = |at: u32| self.first.unwrap_or(0).wrapping_add(at).to_be_bytes();
            options.extend([number(begin), number(end)].concat());
        }
        if let Some((value, echoed)) = line.times {
            let echoed = echoed.wrapping_add(self.clock.unwrap_or(0));
            options.extend([1, 1, 8, 10]);
            options.extend([value.to_be_bytes(), echoed.to_be_bytes()].concat());
        }
        options.resize(options.len().next_multiple_of(4), 0);
        let header_bytes = packet::TCP_BYTES + options.len();
        let bytes = header_bytes + data as usize;
        let mut frame = packet::begin(self.peer.ip(), self.own.ip(), packet::TCP, bytes);
        frame.extend(self.peer.port().to_be_bytes());
        frame.extend(self.own.port().to_be_bytes());
        frame.extend(PEER_FIRST.wrapping_add(line.begin).to_be_bytes());
        let ack = self.first.unwrap_or(0).wrapping_add(line.ack.unwrap_or(0));
        frame.extend(ack.to_be_bytes());
        let offset = line.offset.unwrap_or(header_bytes as u8 / 4);
        frame.extend([offset << 4, line.flags]);
        frame.extend(line.win.unwrap_or(0).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(line.urg.to_be_bytes());
        frame.extend(options);
        // The first byte of data has the number 1.
        frame.extend((0..data).map(|at| byte(0, line.begin.wrapping_add(at) as usize)));
        address(&mut frame, MACS[1], MACS[0]);
        let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
        self.stack.receive(self.now, 0, Frame { offload, bytes: &frame }, &mut self.wire);
        self.serve();
    }

    /// What the stack has sent next is this.
    fn expect(&mut self, line: &Line) -> Result<(), String> {
        let frame = self.sent.pop_front().ok_or("nothing was sent")?;
        let packet = packet::Packet::parse(&frame).map_err(|reason| format!("{reason:?}"))?;
        let transport = packet.transport();
        let segment = packet::Segment::parse(transport).map_err(|reason| format!("{reason:?}"))?;
        if segment.has(SYN) && self.first.is_none() {
            self.first = Some(segment.sequence);
            self.own.set_port(segment.source);
        }
        let begin = segment.sequence.wrapping_sub(self.first.unwrap_or(0));
        let said = Segment {
            flags: segment.flags & !8,
            begin,
            end: begin.wrapping_add(segment.data_bytes as u32),
            ack: segment.has(ACK).then(|| segment.acknowledgement.wrapping_sub(PEER_FIRST)),
        };
        let agreed = packet::agreed(transport, packet.source.is_ipv4());
        let said_times = packet::Times::parse(transport).map(|times| {
            let began = *self.clock.get_or_insert(times.value);
            (times.value.wrapping_sub(began), times.echoed)
        });
        let is_so = said.flags == line.flags & !8
            && (said.begin, said.end) == (line.begin, line.end)
            && (line.ack.is_none() || line.ack == said.ack)
            && line.win.is_none_or(|win| win == segment.window)
            && line.mss.is_none_or(|mss| mss == agreed.segment_bytes_max)
            && line.wscale.is_none_or(|shift| Some(shift) == agreed.window_shift)
            && (!line.has_sack_ok || agreed.takes_selective)
            && line.times.is_none_or(|times| Some(times) == said_times)
            && line.sack.is_none_or(|block| Some(block) == self.sack(transport));
        let ends = (SocketAddr::new(packet.destination, segment.destination), segment.source);
        if ends != (self.peer, self.own.port()) {
            return Err(format!("it was sent from port {} to {}", ends.1, ends.0));
        }
        if is_so {
            return Ok(());
        }
        let sack = self.sack(transport);
        Err(format!(
            "it has sent {said:?} win {} {agreed:?} sack {sack:?} times {said_times:?}",
            segment.window
        ))
    }

    /// The first block that is acknowledged selectively (RFC 2018 3).
    fn sack(&self, transport: &[u8]) -> Option<(u32, u32)> {
        let block = packet::option(transport, 5)?.get(2..10)?;
        let number =
            |at: usize| block[at..].first_chunk::<4>().map(|four| u32::from_be_bytes(*four));
        let [begin, end] = [number(0)?, number(4)?].map(|number| number.wrapping_sub(PEER_FIRST));
        Some((begin, end))
    }

    fn id(&self) -> Result<ConnectionId, String> {
        self.id.ok_or("there is no connection".into())
    }

    fn run(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        if verb != ">"
            && let Some(frame) = self.sent.front()
        {
            let copy = frame.clone();
            let said = self.expect(&Line { flags: 0xff, ..Line::default() });
            return Err(format!("before that {said:?} ({} bytes)", copy.len()));
        }
        let is = |is_so: bool, what: String| if is_so { Ok(()) } else { Err(what) };
        match verb {
            ">" => return self.expect(&Line::parse(&mut words)),
            "<" => self.inject(&Line::parse(&mut words)),
            "listen" => {
                let backlog = words.next().map_or(1, number) as usize;
                self.stack.listen(self.own, backlog).map_err(|error| error.to_string())?;
            }
            "connect" => {
                self.peer.set_port(PORT);
                let id = self.stack.connect(self.now, self.peer);
                self.id = Some(id.map_err(|error| error.to_string())?);
            }
            "accept" => {
                let accepted = self.stack.accept(self.own).ok_or("nothing to accept")?;
                self.id = Some(accepted.0);
            }
            "ports" => {
                self.peer.set_port(self.peer.port() + 1);
                (self.first, self.id, self.read, self.clock) = (None, None, 0, None);
            }
            "again" => (self.first, self.id) = (None, None),
            "nodelay" => self.stack.set_no_delay(self.id()?, true),
            "close" => self.stack.close(self.id()?),
            "abort" => self.stack.abort(self.id()?),
            "shut" => self.stack.shut_sending(self.id()?),
            "write" => {
                let bytes = words.next().map_or(0, number) as usize;
                let mut sent = 0;
                while let Some(count) = self.stack.send_with(self.id()?, |room| {
                    let count = room.len().min(bytes - sent);
                    (count, count)
                }) && count > 0
                {
                    sent += count;
                }
                is(sent == bytes, format!("room for {sent} bytes"))?;
            }
            "read" => {
                let bytes = words.next().map_or(0, number) as usize;
                let mut found = Vec::new();
                while let Some(()) = self.stack.receive_with(self.id()?, |bytes| {
                    found.extend_from_slice(bytes);
                    (bytes.len(), ())
                }) {}
                is(found.len() == bytes, format!("{} bytes have come", found.len()))?;
                let is_right = |(at, found): (usize, &u8)| *found == byte(0, 1 + self.read + at);
                is(found.iter().enumerate().all(is_right), "other bytes".into())?;
                self.read += bytes;
            }
            "eof" => {
                let readable = self.stack.readable(self.id()?);
                is(readable == Readable::Finished, format!("{readable:?}"))?;
            }
            "alive" => {
                let writable = self.stack.writable(self.id()?);
                is(writable == Writable::Room, format!("{writable:?}"))?;
            }
            "failed" => {
                let end = self.stack.take_end(self.id()?);
                let expected = match words.next() {
                    Some("reset") => End::Reset,
                    Some("pipe") => End::Unwanted,
                    Some("refused") => End::Refused,
                    _ => End::TimedOut,
                };
                is(end == Some(expected), format!("{end:?}"))?;
            }
            verb => match verb.strip_prefix('+').and_then(|time| time.parse::<f64>().ok()) {
                Some(time) => self.pass((time * 1e9) as u64),
                None => return Err("not known".into()),
            },
        }
        self.serve();
        Ok(())
    }
}

/// What was sent.
#[derive(Debug)]
struct Segment {
    flags: u8,
    begin: u32,
    end: u32,
    ack: Option<u32>,
}

/// Runs a script. What is not followed is returned with its line.
fn play(script: &[(usize, &str)], family: usize) -> Result<(), String> {
    let mut options = Options {
        receive_bytes: 8192,
        send_bytes: 32_768,
        congestion: Congestion::None,
        acknowledge_after: Duration::ZERO,
        device: Device {
            medium: Medium { resend_after: Duration::from_secs(1), ..Medium::MEMORY },
            ..Device::LAN
        },
        ..Options::default()
    };
    let mut rest = Vec::new();
    for (at, line) in script {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "set" => {
                let value = number(words[2]);
                match words[1] {
                    "receive_bytes" => options.receive_bytes = value as usize,
                    "acknowledge_after_ms" => {
                        options.acknowledge_after = Duration::from_millis(value.into());
                    }
                    "times" => options.device.medium.has_timestamps = true,
                    "reno" => options.congestion = Congestion::Reno,
                    word => return Err(format!("set {word}: not known")),
                }
            }
            "only" if number(words[1]) as usize != [4, 6][family] => return Ok(()),
            "only" | "linux" => {}
            _ => rest.push((*at, *line)),
        }
    }
    let mut stage = Stage::new(family, options);
    let end = script.last().map_or(1, |(at, _)| at + 1);
    for (at, line) in rest.into_iter().chain([(end, "+0")]) {
        stage.run(line).map_err(|fault| format!("{at}: {line}: {fault}"))?;
    }
    Ok(())
}

/// `SIGA_SCRIPT` runs those whose names have this in them.
#[test]
fn scripts_of_the_rfcs_are_followed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tcpip/tests/scripts");
    let wanted = std::env::var("SIGA_SCRIPT").unwrap_or_default();
    let mut faults = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for script in scripts(&text) {
            for family in [0, 1] {
                count += 1;
                if name.contains(&wanted)
                    && let Err(fault) = play(&script, family)
                {
                    faults.push(format!("{name}.txt:{fault} (IPv{})", [4, 6][family]));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(count > 20, "{count} scripts");
}

#[test]
fn script_that_is_not_followed_is_a_fault() {
    let start = "listen\n< S 0:0 win 8000 mss 1000\n";
    for (rest, fault) in [
        ("> S. 0:0 ack 1", None),
        ("> S. 0:0 ack 1 mss 1460 win 8192", None),
        ("", Some("+0: before that")),
        ("+1", Some("3: +1: before that")),
        ("> S. 0:0 ack 2", Some("it has sent")),
        ("> S. 0:0 ack 1 win 8191", Some("it has sent")),
        ("> S 0:0 ack 1", Some("it has sent")),
        ("> S. 0:0 ack 1\n> S. 0:0 ack 1", Some("nothing was sent")),
        ("> S. 0:0 ack 1\n< . 1:1 ack 1 win 9\naccept\nread 1", Some("0 bytes have come")),
        ("> S. 0:0 ack 1\n< . 1:1 ack 1 win 9\naccept\neof", Some("Nothing")),
    ] {
        let text = format!("{start}{rest}");
        let played = play(&scripts(&text)[0], 0);
        match (&played, fault) {
            (Ok(()), None) => {}
            (Err(found), Some(fault)) if found.contains(fault) => {}
            _ => panic!("{rest}: {played:?}"),
        }
    }
}
