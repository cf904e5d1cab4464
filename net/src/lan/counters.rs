//! What a member of a LAN counts, in storage of its own that the host reads when somebody asks.

use fabric::listed;
use os::sync::Ordering;
use os::words::{WORD_BYTES, Words};

listed! {
    /// What is counted, each in a word of its own at this index.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum Counter {
        /// Frames sent, each copy of a broadcast included.
        FramesSent => "frames_sent",
        /// Bytes of these.
        BytesSent => "bytes_sent",
        /// Segments that these stand for.
        SegmentsSent => "segments_sent",
        /// Frames received and given out.
        FramesReceived => "frames_received",
        /// Bytes of these.
        BytesReceived => "bytes_received",
        /// Segments that these stand for.
        SegmentsReceived => "segments_received",
        /// Frames to a group, once each.
        GroupFramesSent => "group_frames_sent",
        /// Times that a frame was given back because its target was full.
        Full => "full",
        /// Frames given back because the LAN has no member with that address.
        NoMember => "no_member",
        /// Frames given back because of their length, source, VLAN or offload.
        Refused => "refused",
        /// Frames for a path that did not come about, or has ended.
        Lost => "lost",
        /// Received frames dropped: shorter or longer than a frame may be.
        DroppedLength => "dropped_length",
        /// Received frames dropped: their head makes no sense, or not of this frame.
        DroppedOffload => "dropped_offload",
        /// Received frames dropped: their source is not an address of the member that sent them.
        DroppedSource => "dropped_source",
        /// Received frames dropped: the sender, or this member, does not belong to the VLAN.
        DroppedVlan => "dropped_vlan",
        /// Received frames dropped: their IP source is not an address of the member that sent them.
        DroppedAddress => "dropped_address",
        /// Frames dropped, sent by a kernel or received for one: they say or ask who has an IP address, or is a router, which the address table
        /// alone says.
        DroppedDiscovery => "dropped_discovery",
        /// Received frames dropped because a device behind this member had no room.
        DroppedDevice => "dropped_device",
        /// Frames that this member answered itself, on behalf of the one that was asked.
        AnsweredHere => "answered_here",
        /// Paths made.
        PathsMade => "paths_made",
        /// Paths that could not be made.
        PathsFailed => "paths_failed",
        /// Copies of sent frames for which a member that captures had no room.
        CapturesLost => "captures_lost",
        /// Paths refused to a member that asks for one again too often.
        PathsRefused => "paths_refused",
    }
}

/// A part of a member, which is the only one that adds to its counters: so different threads can serve the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Sends frames, and copies of them.
    Outbound,
    /// Receives frames, and drops what must not come in.
    Inbound,
    /// Makes and ends paths, and keeps frames until there is one.
    Paths,
    /// The program, for a device behind the member.
    Program,
}

impl Part {
    /// Returns the part that adds to a counter.
    pub const fn of(counter: Counter) -> Part {
        use Counter::*;
        match counter {
            FramesSent | BytesSent | SegmentsSent | GroupFramesSent | Full | NoMember | Refused
            | CapturesLost => Part::Outbound,
            FramesReceived | BytesReceived | SegmentsReceived | DroppedLength | DroppedOffload
            | DroppedSource | DroppedVlan | DroppedAddress | DroppedDiscovery => Part::Inbound,
            Lost | PathsMade | PathsFailed | PathsRefused => Part::Paths,
            DroppedDevice | AnsweredHere => Part::Program,
        }
    }
}

/// Words that the counters take.
pub const COUNTER_WORDS: usize = 32;
const _: () = assert!(Counter::ALL.len() <= COUNTER_WORDS);

/// Words of the storage that the counters are in. Behind them a stack shows itself, if there is one on the membership:
/// [`board`](crate::board).
pub const BOARD_WORDS: usize = 8192;

/// Bytes of that storage. What was not written takes no memory.
pub const BOARD_BYTES: usize = BOARD_WORDS * WORD_BYTES;

/// The counters of one part of a member.
#[derive(Debug)]
pub struct Counters {
    part: Part,
    words: Words,
    values: [u64; COUNTER_WORDS],
}

impl Counters {
    /// Counters of a part that stand at zero, in fresh words.
    ///
    /// # Panics
    /// If the words are too few: a broken promise inside this program.
    pub fn new(words: Words, part: Part) -> Counters {
        assert!(words.count() >= COUNTER_WORDS, "words of counters");
        Counters { part, words, values: [0; COUNTER_WORDS] }
    }

    /// The words, behind whose first ones a stack shows itself.
    pub fn board(&self) -> &Words {
        &self.words
    }

    /// What a counter of this part stands at.
    pub fn get(&self, counter: Counter) -> u64 {
        debug_assert_eq!(Part::of(counter), self.part, "{counter:?}");
        self.values[counter as usize]
    }

    /// Counts. The counter has to be one of this part.
    #[inline(always)]
    pub fn add(&mut self, counter: Counter, number: u64) {
        debug_assert_eq!(Part::of(counter), self.part, "{counter:?}");
        let value = &mut self.values[counter as usize];
        *value = value.wrapping_add(number);
        // Relaxed: a number to be looked at orders nothing.
        self.words.store(counter as usize, *value, Ordering::Relaxed);
    }
}
