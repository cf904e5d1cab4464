//! What a stack shows of itself: words in storage that its member lends to the host, which reads them for observers without
//! the stack's help. They begin behind the member's own counters.
//!
//! ```text
//! word   0            32        48         112      128                                 8192
//!        | counters   | overview | counters | spare  | row | row | ... connections, sockets, |
//!        | of the LAN |          | of stack |        | of 16 words each  clients, ways, drivers |
//! ```
//!
//! A row is written while its first word is odd, and is empty while that is 0. What a member writes is its own affair: a host
//! takes every word for a number or for nothing.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use fabric::listed;
use fabric::name::Name;
use os::sync::Ordering;
use os::words::{LentWords, Words};

use crate::lan::counters::{BOARD_WORDS, COUNTER_WORDS};

mod client;
mod counter;
mod distributed;
mod driver;
mod way;

pub use client::ClientRow;
pub use counter::Counter;
pub use distributed::{DistributedRole, DistributedRow};
pub use driver::DriverRow;
pub use way::Way;

/// Which edition of the layout this is; 0 where there is no stack.
const EDITION: u64 = 10;

const OVERVIEW_AT: usize = COUNTER_WORDS;
/// The name of the TCPIP machine that the stack is; 0 if it is none.
const MACHINE_AT: usize = OVERVIEW_AT + 10;
const COUNTERS_AT: usize = OVERVIEW_AT + 16;
const ROWS_AT: usize = 128;
const ROW_WORDS: usize = 16;
const _: () = assert!(COUNTERS_AT + Counter::ALL.len() <= ROWS_AT);

/// Rows at most: connections that are more are not shown one by one.
pub const ROWS: usize = (BOARD_WORDS - ROWS_AT) / ROW_WORDS;

/// Rows that are for listeners and sockets of UDP, behind those for connections.
pub const SOCKET_ROWS: usize = 64;

/// Rows that are for the clients of a TCPIP machine, behind those for sockets.
pub const CLIENT_ROWS: usize = 64;

/// Rows that are for interfaces and routes, behind those for clients.
pub const WAY_ROWS: usize = 64;

/// Rows that are for the drivers of LANs, behind those for interfaces and routes.
pub const DRIVER_ROWS: usize = 16;

/// Rows that are for the targets of distributed addresses, behind those for drivers.
pub const DISTRIBUTED_ROWS: usize = 64;

/// Rows for connections.
pub const CONNECTION_ROWS: usize =
    ROWS - SOCKET_ROWS - CLIENT_ROWS - WAY_ROWS - DRIVER_ROWS - DISTRIBUTED_ROWS;

/// The row of the first client, of the first way, of the first driver, and of the first target.
const CLIENTS_AT: usize = CONNECTION_ROWS + SOCKET_ROWS;
const WAYS_AT: usize = CLIENTS_AT + CLIENT_ROWS;
const DRIVERS_AT: usize = WAYS_AT + WAY_ROWS;
const DISTRIBUTED_AT: usize = DRIVERS_AT + DRIVER_ROWS;

/// Words of a row that say something, but for rows of drivers.
const FIELDS: usize = 10;
const _: () = assert!(FIELDS < ROW_WORDS && driver::DRIVER_FIELDS < ROW_WORDS);

/// The state of an empty row.
const NO_STATE: u64 = u64::MAX;

/// How often a row that is being written is read again.
const TRIES: usize = 8;

listed! {
    /// What a row stands for: a connection in one of the states of RFC 9293 3.3.2, or a socket.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum RowState {
        /// A listener.
        Listen => "listen",
        /// A program here has asked for a connection.
        SynSent => "syn-sent",
        /// A listener was asked for one.
        SynReceived => "syn-received",
        /// Both can send.
        Established => "established",
        /// Our half is closed, and the other side has not acknowledged that.
        FinWait1 => "fin-wait-1",
        /// Our half is closed.
        FinWait2 => "fin-wait-2",
        /// The other side's half is closed.
        CloseWait => "close-wait",
        /// Both have closed at once, and the other side has not acknowledged that.
        Closing => "closing",
        /// Both halves are closed, and the other side has not acknowledged ours.
        LastAck => "last-ack",
        /// Both are closed, and our last acknowledgement has not gone.
        TimeWait => "time-wait",
        /// It is over, and a program still has it.
        Closed => "closed",
        /// A socket of UDP.
        Udp => "udp",
    }
}

/// A connection or a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is, and in which state.
    pub state: RowState,
    /// Our address.
    pub local: SocketAddr,
    /// The other side's; none for a socket.
    pub remote: Option<SocketAddr>,
    /// Bytes that were written and are not acknowledged; of a listener the connections that may wait.
    pub send_queue: u64,
    /// Bytes, or of a socket of UDP datagrams, that have come and were not read; of a listener the connections that wait.
    pub receive_queue: u64,
    /// Segments with data that were sent again.
    pub resent: u64,
    /// Smoothed time until a segment is acknowledged, in nanoseconds; 0 if none was measured.
    pub round_trip_ns: u64,
}

impl Row {
    /// A row of a socket, with its queues.
    pub fn socket(state: RowState, local: SocketAddr, (send, receive): (u64, u64)) -> Row {
        Row {
            state,
            local,
            remote: None,
            send_queue: send,
            receive_queue: receive,
            resent: 0,
            round_trip_ns: 0,
        }
    }
}

/// What a stack says of itself as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// When, in nanoseconds of the machine's clock.
    pub shown_ns: u64,
    /// Bytes of its largest packet.
    pub mtu: u64,
    /// Its connections, but for those in TIME-WAIT.
    pub connections: u64,
    /// Pairs of ports in TIME-WAIT.
    pub time_wait: u64,
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// Buffers that hold bytes of connections.
    pub in_use: u64,
    /// Buffers that may be in use.
    pub in_use_max: u64,
    /// The most that were in use at once.
    pub high_water: u64,
    /// Buffers that wait for their next bytes.
    pub free: u64,
}

/// All that a stack shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Of the whole.
    pub overview: Overview,
    /// Its counters.
    pub counters: Vec<(Counter, u64)>,
    /// Its connections and sockets, as far as there are rows for them.
    pub rows: Vec<Row>,
    /// The TCPIP machine that it is, if it is one.
    pub machine: Option<Name>,
    /// Its clients, if it is a TCPIP machine's, as far as there are rows for them.
    pub clients: Vec<ClientRow>,
    /// Its interfaces and routes, as far as there are rows for them.
    pub ways: Vec<Way>,
    /// The drivers of its LANs, as far as there are rows for them.
    pub drivers: Vec<DriverRow>,
    /// The targets of distributed addresses in which it has a part, as far as there are rows for them.
    pub distributed: Vec<DistributedRow>,
}

impl Overview {
    fn words(&self) -> [u64; 9] {
        let Overview { shown_ns, mtu, connections, time_wait, buffer_bytes, .. } = *self;
        let Overview { in_use, in_use_max, high_water, free, .. } = *self;
        [shown_ns, mtu, connections, time_wait, buffer_bytes, in_use, in_use_max, high_water, free]
    }
}

/// Shows the whole of a stack. `counters` are in the order of [`Counter::ALL`].
///
/// # Panics
/// If the words are too few: a broken promise inside this program.
pub fn show(words: &Words, overview: &Overview, counters: &[u64]) {
    // Relaxed: numbers to be looked at.
    for (at, word) in overview.words().into_iter().enumerate() {
        words.store(OVERVIEW_AT + 1 + at, word, Ordering::Relaxed);
    }
    for (at, count) in counters.iter().enumerate().take(Counter::ALL.len()) {
        words.store(COUNTERS_AT + at, *count, Ordering::Relaxed);
    }
    words.store(OVERVIEW_AT, EDITION, Ordering::Release);
}

/// Hides the stack until [`show`] is called again: the stack shows itself elsewhere.
pub fn hide(words: &Words) {
    words.store(OVERVIEW_AT, 0, Ordering::Release);
}

/// Shows a connection or a socket in a row, or that there is none.
///
/// # Panics
/// If there is no such row: a broken promise inside this program.
pub fn show_row(words: &Words, number: usize, row: Option<&Row>) {
    assert!(number < CLIENTS_AT, "row {number} of a stack's board");
    write_row(words, number, row.map(row_fields));
}

/// Shows that the stack is the TCPIP machine of this name.
pub fn show_machine(words: &Words, name: Name) {
    words.store(MACHINE_AT, u64::from_le_bytes(name.bytes()), Ordering::Relaxed);
}

/// Shows the clients of a machine, in place of those that were shown before. Those that are more than [`CLIENT_ROWS`] are not shown.
pub fn show_clients(words: &Words, clients: impl Iterator<Item = ClientRow>) {
    let mut clients = clients.map(|client| client.fields());
    for number in CLIENTS_AT..WAYS_AT {
        write_row(words, number, clients.next());
    }
}

/// Shows the interfaces and routes, in place of those that were shown before. Those that are more than [`WAY_ROWS`] are not
/// shown.
pub fn show_ways(words: &Words, ways: impl Iterator<Item = Way>) {
    let mut ways = ways.map(|way| way.fields());
    for number in WAYS_AT..DRIVERS_AT {
        write_row(words, number, ways.next());
    }
}

/// Shows the drivers of the LANs, in place of those that were shown before. Those that are more than [`DRIVER_ROWS`] are not shown.
pub fn show_drivers(words: &Words, drivers: impl Iterator<Item = DriverRow>) {
    let mut drivers = drivers.map(|driver| driver.fields());
    for number in DRIVERS_AT..DISTRIBUTED_AT {
        write_row(words, number, drivers.next());
    }
}

/// Shows the targets of distributed addresses, in place of those that were shown before. Those that are more than [`DISTRIBUTED_ROWS`] are not shown.
pub fn show_distributed(words: &Words, rows: impl Iterator<Item = DistributedRow>) {
    let mut rows = rows.map(|row| row.fields());
    for number in DISTRIBUTED_AT..ROWS {
        write_row(words, number, rows.next());
    }
}

fn row_fields(row: &Row) -> [u64; FIELDS] {
    let ends = u64::from(row.local.port()) << 16
        | row.remote.map_or(0, |remote| u64::from(remote.port()))
        | u64::from(row.remote.is_some()) << 32;
    let [local_high, local_low] = address_words(row.local.ip());
    let [remote_high, remote_low] = row.remote.map_or([0; 2], |remote| address_words(remote.ip()));
    [
        row.state as u64,
        ends,
        local_high,
        local_low,
        remote_high,
        remote_low,
        row.send_queue,
        row.receive_queue,
        row.resent,
        row.round_trip_ns,
    ]
}

fn write_row<const N: usize>(words: &Words, number: usize, fields: Option<[u64; N]>) {
    let at = ROWS_AT + number * ROW_WORDS;
    let edition = words.load(at, Ordering::Relaxed);
    let is_empty = edition == 0 || words.load(at + 1, Ordering::Relaxed) == NO_STATE;
    if fields.is_none() && is_empty {
        return;
    }
    // A reader that finds this edition, or another than before, reads again.
    words.store(at, edition | 1, Ordering::SeqCst);
    let next = (edition | 1).wrapping_add(1).max(2);
    let Some(fields) = fields else {
        words.store(at + 1, NO_STATE, Ordering::Release);
        return words.store(at, next, Ordering::SeqCst);
    };
    for (field, word) in fields.into_iter().enumerate() {
        words.store(at + 1 + field, word, Ordering::Release);
    }
    words.store(at, next, Ordering::SeqCst);
}

/// What a stack shows; none if there is none, or it shows itself in a way that we do not know.
pub fn read(words: &LentWords) -> Option<Shown> {
    if words.count() < BOARD_WORDS || words.load(OVERVIEW_AT, Ordering::Acquire) != EDITION {
        return None;
    }
    let number = |at: usize| words.load(OVERVIEW_AT + 1 + at, Ordering::Relaxed);
    let overview = Overview {
        shown_ns: number(0),
        mtu: number(1),
        connections: number(2),
        time_wait: number(3),
        buffer_bytes: number(4),
        in_use: number(5),
        in_use_max: number(6),
        high_water: number(7),
        free: number(8),
    };
    let count = |counter: Counter| words.load(COUNTERS_AT + counter as usize, Ordering::Relaxed);
    let counters = Counter::ALL.into_iter().map(|counter| (counter, count(counter)));
    let rows = (0..CLIENTS_AT).filter_map(|number| parse_row(read_row(words, number)?));
    let clients =
        (CLIENTS_AT..WAYS_AT).filter_map(|number| ClientRow::parse(read_row(words, number)?));
    let clients = clients.collect();
    let ways = (WAYS_AT..DRIVERS_AT).filter_map(|number| Way::parse(read_row(words, number)?));
    let drivers = (DRIVERS_AT..DISTRIBUTED_AT)
        .filter_map(|number| DriverRow::parse(read_row(words, number)?));
    let distributed =
        (DISTRIBUTED_AT..ROWS).filter_map(|number| DistributedRow::parse(read_row(words, number)?));
    let distributed = distributed.collect();
    let (rows, ways, drivers) = (rows.collect(), ways.collect(), drivers.collect());
    let machine = Name::parse(words.load(MACHINE_AT, Ordering::Relaxed).to_le_bytes());
    let counters = counters.collect();
    Some(Shown { overview, counters, rows, machine, clients, ways, drivers, distributed })
}

fn read_row<const N: usize>(words: &LentWords, number: usize) -> Option<[u64; N]> {
    let at = ROWS_AT + number * ROW_WORDS;
    for _ in 0..TRIES {
        let edition = words.load(at, Ordering::SeqCst);
        if edition == 0 {
            return None;
        }
        let fields: [u64; N] =
            std::array::from_fn(|field| words.load(at + 1 + field, Ordering::Acquire));
        if edition & 1 == 0 && words.load(at, Ordering::SeqCst) == edition {
            return Some(fields);
        }
    }
    None
}

fn parse_row(fields: [u64; FIELDS]) -> Option<Row> {
    let [state, ends, ..] = fields;
    let [.., remote_high, remote_low, send_queue, receive_queue, resent, round_trip_ns] = fields;
    let port = |shift: u32| (ends >> shift) as u16;
    let local = SocketAddr::new(address(fields[2], fields[3]), port(16));
    let remote = SocketAddr::new(address(remote_high, remote_low), port(0));
    Some(Row {
        state: *RowState::ALL.get(usize::try_from(state).ok()?)?,
        local,
        remote: (ends >> 32 & 1 == 1).then_some(remote),
        send_queue,
        receive_queue,
        resent,
        round_trip_ns,
    })
}

fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

fn address(high: u64, low: u64) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(state: RowState, remote: Option<&str>) -> Row {
        Row {
            state,
            local: "10.1.0.1:80".parse().unwrap(),
            remote: remote.map(|remote| remote.parse().unwrap()),
            send_queue: 1,
            receive_queue: 2,
            resent: 3,
            round_trip_ns: 4,
        }
    }

    #[test]
    fn what_was_shown_is_read() {
        let (words, lent) = Words::pair(BOARD_WORDS).unwrap();
        assert_eq!(read(&lent), None);
        let overview = Overview { mtu: 1500, free: 7, ..Overview::default() };
        show(&words, &overview, &[9; Counter::ALL.len()]);
        let shown = read(&lent).unwrap();
        assert_eq!((shown.overview, shown.rows.len()), (overview, 0));
        assert!(shown.counters.iter().all(|(_, count)| *count == 9));
        let rows = [
            row(RowState::Established, Some("10.1.0.2:1024")),
            row(RowState::Closed, Some("[fd00::2]:65535")),
            row(RowState::Listen, None),
        ];
        for round in 0..3 {
            for (number, row) in [0, 1, CLIENTS_AT - 1].into_iter().zip(&rows) {
                show_row(&words, number, Some(row));
            }
            assert_eq!(read(&lent).unwrap().rows, rows, "round {round}");
        }
        show_row(&words, 1, None);
        assert_eq!(read(&lent).unwrap().rows, [rows[0], rows[2]]);
        let client = |guest: &str| ClientRow {
            guest: guest.parse().unwrap(),
            sockets: 1,
            sockets_max: 2,
            buffers_bytes: 3,
            buffers_bytes_max: 4,
            requests: 5,
            bytes_in: 6,
            bytes_out: 7,
            refused: 8,
            turns_cut: 9,
        };
        let clients = [client("A"), client("LONGNAME")];
        show_clients(&words, clients.into_iter().cycle().take(2 * CLIENT_ROWS));
        assert_eq!(read(&lent).unwrap().clients.len(), CLIENT_ROWS);
        show_clients(&words, clients.into_iter());
        assert_eq!(read(&lent).unwrap().clients, clients);
        let (address, via) = ("10.1.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        let interface =
            |vlan, forwards| Way::Interface { lan: 1, vlan, mtu: 1500, address, forwards };
        let ways = [
            interface(None, false),
            interface(Some(4094), true),
            Way::Route { network: via, bits: 64, via, is_there: true },
            Way::Route { network: address, bits: 0, via: address, is_there: false },
        ];
        show_ways(&words, ways.into_iter().cycle().take(2 * WAY_ROWS));
        assert_eq!(read(&lent).unwrap().ways.len(), WAY_ROWS);
        show_ways(&words, ways.into_iter());
        let shown = read(&lent).unwrap();
        assert_eq!((shown.ways, shown.rows), (ways.to_vec(), vec![rows[0], rows[2]]));
        hide(&words);
        assert_eq!(read(&lent), None);
    }

    #[test]
    fn drivers_are_read_as_they_were_shown() {
        let (words, lent) = Words::pair(BOARD_WORDS).unwrap();
        show(&words, &Overview::default(), &[0; Counter::ALL.len()]);
        let driver = |name: &str, processor: Option<u32>| DriverRow {
            name: name.parse().unwrap(),
            lan: 65_535,
            processor,
            polls: 1,
            polls_empty: 2,
            frames_in: 3,
            frames_out: 4,
            frames_waited: 5,
            frames_dropped: 6,
            sleeps: 7,
            processor_ns: 8,
            takeovers: 9,
            moves: 10,
        };
        let drivers =
            [driver("hs0", None), driver("hs1", Some(0)), driver("longname", Some(u32::MAX))];
        show_drivers(&words, drivers.into_iter().cycle().take(2 * DRIVER_ROWS));
        assert_eq!(read(&lent).unwrap().drivers.len(), DRIVER_ROWS);
        show_drivers(&words, drivers.into_iter());
        assert_eq!(read(&lent).unwrap().drivers, drivers);
        let at = ROWS_AT + DRIVERS_AT * ROW_WORDS + 1;
        assert_eq!(words.load(at, Ordering::Relaxed), u64::from_le_bytes(*b"hs0     "));
        assert_eq!(words.load(at + 1, Ordering::Relaxed), 0xffff);
        // A name that no LAN has is no driver's.
        words.store(at, u64::from_le_bytes(*b"HS0     "), Ordering::Relaxed);
        assert_eq!(read(&lent).unwrap().drivers, drivers[1..]);
        show_drivers(&words, std::iter::empty());
        assert_eq!(read(&lent).unwrap().drivers, []);
    }

    proptest! {
        #[test]
        fn any_words_are_read(all in prop::collection::vec(any::<u64>(), BOARD_WORDS)) {
            let (words, lent) = Words::pair(BOARD_WORDS).unwrap();
            for (at, word) in all.iter().enumerate() {
                // States and editions that are none are seldom right by chance.
                let word = if at % ROW_WORDS < 2 { word % 32 } else { *word };
                words.store(at, word, Ordering::Relaxed);
            }
            words.store(OVERVIEW_AT, EDITION, Ordering::Relaxed);
            let shown = read(&lent).unwrap();
            prop_assert!(shown.rows.len() + shown.clients.len() + shown.ways.len() <= ROWS);
        }
    }
}
