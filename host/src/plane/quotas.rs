//! Tests of the limits: each is reached by one user while another goes on.

use std::os::fd::{AsFd, OwnedFd};

use fabric::control::{
    Allowance, Kind, Limit, NO_DATA, Owner, PACKET_BYTES_MAX, PENDING_MAX, Problem, Reached, Reply,
    Request, RuleName, Target, Token, WantedAddress,
};
use fabric::name::Name;
use fabric::path::{Shape, Side, SideDescriptors};
use os::packets::Packets;
use os::peer::Credentials;

use super::{Door, Host};
use crate::config::Source;
use crate::report::LimitReport;
use crate::system::{REQUESTS_PER_S, System, TABLE_WRITES_PER_S};

/// Users who may attach under names that begin with their letter, and who are not the host's.
const GREEDY: u32 = 70_001;
const OTHER: u32 = 70_002;

const SECOND_NS: u64 = 1_000_000_000;

const RULES: &str = r#"
    [[guest]]
    name = "A*"
    users = [70001]
    connect = ["*"]
    [[guest]]
    name = "B*"
    users = [70002]
    connect = ["*"]
    [[guest]]
    name = "DB"
    users = [70001]
    connect = ["*"]
    [[lan]]
    name = "hs0"
    range = "10.7.0.0/16"
    members = ["*"]
"#;

struct Scene {
    host: Host,
    now_ns: u64,
}

/// A connection of a user's.
struct Party {
    packets: Packets,
    serial: u32,
}

impl Scene {
    fn new(settings: &str) -> Scene {
        let text = format!("{settings}{RULES}");
        let system = System::parse(&Source::of("s.toml", &text)).unwrap();
        let (host, _handle) = Host::new(system).unwrap();
        Scene { host, now_ns: SECOND_NS }
    }

    fn connect(&mut self, user: u32) -> Party {
        let (ours, theirs) = Packets::pair().unwrap();
        let credentials =
            Credentials { process: Some(std::process::id()), user, groups: Vec::new() };
        self.host.take_in_as(theirs, credentials, Door::Socket, self.now_ns);
        Party { packets: ours, serial: 0 }
    }

    fn poll(&mut self) {
        self.host.poll(self.now_ns).unwrap();
    }

    /// Sends a request, polls the host once, and returns its reply.
    fn ask(&mut self, party: &mut Party, request: &Request, passed: &[&OwnedFd]) -> Option<Reply> {
        party.send(request, passed);
        self.poll();
        party.answer()
    }

    fn try_attach(&mut self, user: u32, name: &str) -> Result<Party, Problem> {
        let mut party = self.connect(user);
        let name = name.parse().unwrap();
        // One that is not taken in is told before it asks.
        let told = party.answer();
        match told.or_else(|| self.ask(&mut party, &Request::Attach { name }, &[])) {
            Some(Reply::Attached) => Ok(party),
            Some(Reply::Failed { problem, .. }) => Err(problem),
            reply => panic!("{reply:?}"),
        }
    }

    fn attach(&mut self, user: u32, name: &str) -> Party {
        self.try_attach(user, name).unwrap()
    }

    /// How many of the attempts succeed until one is refused, and how it is refused.
    fn until_refused<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Scene, usize) -> Result<T, Problem>,
    ) -> (Vec<T>, Problem) {
        let mut kept = Vec::new();
        loop {
            match attempt(self, kept.len()) {
                Ok(next) => kept.push(next),
                Err(problem) => return (kept, problem),
            }
            assert!(kept.len() < 10_000, "there is a limit");
        }
    }

    fn rows(&self, owner: Owner, limit: Limit) -> Vec<LimitReport> {
        let rows = self.host.report_limits(self.now_ns).into_iter();
        let is_it = |row: &LimitReport| row.owner == owner.to_string() && row.limit == limit.name();
        rows.filter(is_it).collect()
    }

    /// The row of the report: how much is used, may be used, and how often more was refused.
    fn row(&self, owner: Owner, limit: Limit) -> (u64, u64, u64) {
        let rows = self.rows(owner, limit);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        (row.used, row.most, row.refused)
    }
}

impl Party {
    fn send(&mut self, request: &Request, passed: &[&OwnedFd]) {
        self.serial += 1;
        let passed: Vec<_> = passed.iter().map(|descriptor| descriptor.as_fd()).collect();
        self.packets.send(&request.bytes(self.serial), &passed).unwrap();
    }

    /// The next packet that is an answer; none if none has come.
    fn answer(&mut self) -> Option<Reply> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        loop {
            let packet =
                self.packets.receive(&mut buffer).ok().filter(|packet| packet.bytes > 0)?;
            match Reply::parse(&buffer[..packet.bytes]).unwrap().1 {
                Reply::Pending(_) | Reply::Withdrawn { .. } => {}
                reply => return Some(reply),
            }
        }
    }

    fn answers(&mut self) -> u64 {
        std::iter::from_fn(|| self.answer()).count() as u64
    }
}

fn reached(limit: Limit, owner: Owner, most: u64) -> Problem {
    Problem::Limit(Reached { limit, owner, most })
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

const SHAPE: Shape = Shape::SIMPLE;
const ALLOWANCE: Allowance = Allowance { storage_bytes: 4096, messages: 1 };

fn rejoin(peer: &str, number: u64) -> Request {
    let mut token = [0; 16];
    token[..8].copy_from_slice(&number.to_le_bytes());
    let (peer, kind) = (name(peer), Kind::MESSAGES);
    Request::Rejoin { token: Token(token), peer, kind, shape: SHAPE, allowance: ALLOWANCE }
}

fn connect(target: &str) -> Request {
    Request::Connect {
        target: Target::Guest(name(target)),
        kind: Kind::MESSAGES,
        flags: 0,
        data: NO_DATA,
        shape: SHAPE,
        allowance: ALLOWANCE,
    }
}

fn result(reply: Option<Reply>) -> Result<(), Problem> {
    match reply {
        None | Some(Reply::Done { .. }) => Ok(()),
        Some(Reply::Failed { problem, .. }) => Err(problem),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn guests_of_a_user_are_half_of_what_others_leave_and_a_named_guest_has_its_place() {
    let mut scene = Scene::new("[host]\nguests_max = 16\n");
    let (_greedy, problem) =
        scene.until_refused(|scene, number| scene.try_attach(GREEDY, &format!("A{number}")));
    assert_eq!(problem, reached(Limit::Guests, Owner::User(GREEDY), 8));
    assert_eq!(scene.row(Owner::User(GREEDY), Limit::Guests), (8, 8, 1));
    // Of the same user, which has no more of its own.
    let _db = scene.attach(GREEDY, "DB");
    let (others, problem) =
        scene.until_refused(|scene, number| scene.try_attach(OTHER, &format!("B{number}")));
    assert_eq!(problem, reached(Limit::Guests, Owner::User(OTHER), others.len() as u64));
    assert_eq!(others.len(), 3, "half of seven");
    drop(others);
    scene.poll();
    assert_eq!(scene.row(Owner::Host, Limit::Guests), (9, 16, 0));
    scene.attach(OTHER, "B");
}

#[test]
fn guests_of_a_rule_are_as_many_as_it_says() {
    let mut scene = Scene::new("");
    let text = "[[guest]]\nname = \"WEB*\"\nusers = [70001]\nguests_max = 3\n[[guest]]\nname = \"*\"\nusers = [70001]";
    let system = System::parse(&Source::of("s.toml", text)).unwrap();
    scene.host = Host::new(system).unwrap().0;
    let (_kept, problem) =
        scene.until_refused(|scene, number| scene.try_attach(GREEDY, &format!("WEB{number}")));
    let rule = Owner::Rule(RuleName::beginning("WEB").unwrap());
    assert_eq!(problem, reached(Limit::Guests, rule, 3));
    assert_eq!(scene.row(rule, Limit::Guests), (3, 3, 1));
    scene.attach(GREEDY, "DB");
}

#[test]
fn named_guests_have_places_though_the_file_names_more_than_may_attach() {
    let mut scene = Scene::new("");
    let guest = |name: &str| format!("[[guest]]\nname = \"{name}\"\nusers = [70001]\n");
    let guests: String = ["DB1", "DB2", "DB3", "A*"].map(guest).concat();
    let text = format!("[host]\nguests_max = 2\n{guests}");
    scene.host = Host::new(System::parse(&Source::of("s.toml", &text)).unwrap()).unwrap().0;
    let full = reached(Limit::Guests, Owner::Host, 2);
    assert_eq!(scene.try_attach(GREEDY, "A").err(), Some(full), "both places are kept");
    let _kept = ["DB1", "DB3"].map(|name| scene.attach(GREEDY, name));
    assert_eq!(scene.try_attach(GREEDY, "DB2").err(), Some(full));
}

#[test]
fn named_guest_is_none_of_the_guests_that_its_user_may_have() {
    let mut scene = Scene::new("[[user]]\nname = 70001\nguests_max = 1\n");
    let _named = scene.attach(GREEDY, "DB");
    let _other = scene.attach(GREEDY, "A1");
    let problem = scene.try_attach(GREEDY, "A2").err();
    assert_eq!(problem, Some(reached(Limit::Guests, Owner::User(GREEDY), 1)));
}

#[test]
fn one_storage_that_is_rejoined_again_and_again_takes_the_mappings_of_its_user_alone() {
    let mut scene = Scene::new("");
    scene.host.accounts.set_most(Limit::Mappings, 100);
    let (mut greedy, mut other) = (scene.attach(GREEDY, "A"), scene.attach(OTHER, "B"));
    let (_side, SideDescriptors { board, .. }) = Side::create(SHAPE).unwrap();
    let (kept, problem) = scene.until_refused(|scene, number| {
        result(scene.ask(&mut greedy, &rejoin("B", number as u64), &[&board]))
    });
    assert_eq!(kept.len(), 50);
    assert_eq!(problem, reached(Limit::Mappings, Owner::User(GREEDY), 50));
    let (kept, _) = scene.until_refused(|scene, number| {
        result(scene.ask(&mut other, &rejoin("A", 1000 + number as u64), &[&board]))
    });
    assert_eq!(kept.len(), 25, "half of what is left");
    assert_eq!(scene.row(Owner::Host, Limit::Mappings), (75, 100, 0));
    drop((greedy, other));
    scene.poll();
    assert_eq!(scene.row(Owner::Host, Limit::Mappings), (0, 100, 0), "all is given back");
}

#[test]
fn memory_of_a_user_is_what_the_file_says() {
    let mut scene = Scene::new("[[user]]\nname = 70001\nmemory_max = \"1 MiB\"\n");
    let (mut greedy, mut other) = (scene.attach(GREEDY, "A"), scene.attach(OTHER, "B"));
    let (_side, SideDescriptors { board, .. }) = Side::create(SHAPE).unwrap();
    let (kept, problem) = scene.until_refused(|scene, number| {
        result(scene.ask(&mut greedy, &rejoin("B", number as u64), &[&board]))
    });
    assert_eq!(problem, reached(Limit::Memory, Owner::User(GREEDY), 1 << 20));
    let (used, most, refused) = scene.row(Owner::User(GREEDY), Limit::Memory);
    assert!(used <= most && refused == 1 && !kept.is_empty());
    assert_eq!(result(scene.ask(&mut other, &rejoin("A", 1), &[&board])), Ok(()));
}

#[test]
fn descriptors_of_a_user_are_half_of_what_others_leave() {
    let mut scene = Scene::new("");
    scene.host.accounts.set_most(Limit::Descriptors, 48);
    let (_greedy, problem) =
        scene.until_refused(|scene, number| scene.try_attach(GREEDY, &format!("A{number}")));
    assert_eq!(problem, reached(Limit::Descriptors, Owner::User(GREEDY), 24));
    let (mut other, _target) = (scene.attach(OTHER, "B"), scene.attach(OTHER, "B1"));
    let (_side, SideDescriptors { board, lines }) = Side::create(SHAPE).unwrap();
    let (kept, problem) = scene
        .until_refused(|scene, _| result(scene.ask(&mut other, &connect("B1"), &[&board, &lines])));
    assert_eq!(problem, reached(Limit::Descriptors, Owner::User(OTHER), 12));
    assert_eq!(kept.len(), 4, "two each, beside two guests");
}

#[test]
fn pending_connections_of_a_guest_and_of_a_user_leave_room_for_others() {
    let mut scene = Scene::new("");
    let target = scene.attach(OTHER, "B");
    let (_side, SideDescriptors { board, lines }) = Side::create(SHAPE).unwrap();
    let mut one = scene.attach(GREEDY, "A1");
    let (kept, problem) = scene
        .until_refused(|scene, _| result(scene.ask(&mut one, &connect("B"), &[&board, &lines])));
    assert_eq!(kept.len(), PENDING_MAX / 2);
    assert_eq!(problem, reached(Limit::Pending, Owner::User(GREEDY), 32));
    // Another guest of the same user.
    let mut two = scene.attach(GREEDY, "A2");
    let refused = result(scene.ask(&mut two, &connect("B"), &[&board, &lines]));
    assert_eq!(refused, Err(reached(Limit::Pending, Owner::User(GREEDY), 32)));
    assert_eq!(scene.row(Owner::User(GREEDY), Limit::Pending), (32, 32, 2));
    let mut other = scene.attach(OTHER, "B2");
    let (kept, problem) = scene
        .until_refused(|scene, _| result(scene.ask(&mut other, &connect("B"), &[&board, &lines])));
    assert_eq!(kept.len(), PENDING_MAX / 4);
    assert_eq!(problem, reached(Limit::Pending, Owner::User(OTHER), 16));
    let rows = scene.host.report_limits(scene.now_ns);
    let mut named: Vec<_> = rows.iter().map(|row| (&row.owner, &row.limit)).collect();
    named.sort();
    assert!(
        named.is_sorted_by(|one, next| one < next),
        "a row for each limit and owner: {named:?}"
    );
    let waiting = rows.iter().filter(|row| row.limit == "connections that wait for it");
    let waiting = waiting.filter(|row| row.used > 0).map(|row| (&*row.owner, row.used));
    assert_eq!(waiting.collect::<Vec<_>>(), [("guest B", 48)]);
    drop(target);
}

#[test]
fn guests_of_the_only_user_leave_each_other_room_among_pending_connections() {
    let (mut host, _handle) = Host::new(System::open()).unwrap();
    let own = Credentials::own().user;
    let mut scene = Scene::new("");
    std::mem::swap(&mut scene.host, &mut host);
    let _target = scene.attach(own, "TARGET");
    let (_side, SideDescriptors { board, lines }) = Side::create(SHAPE).unwrap();
    for (guest, half) in [("ONE", 32), ("TWO", 16), ("THREE", 8)] {
        let mut guest = (scene.attach(own, guest), name(guest));
        let (kept, problem) = scene.until_refused(|scene, _| {
            result(scene.ask(&mut guest.0, &connect("TARGET"), &[&board, &lines]))
        });
        assert_eq!(kept.len(), half);
        assert_eq!(problem, reached(Limit::Pending, Owner::Guest(guest.1), half as u64));
        assert_eq!(scene.row(Owner::Guest(guest.1), Limit::Pending), (half as u64, 32, 1));
        std::mem::forget(guest);
    }
}

#[test]
fn requests_of_a_user_are_as_many_in_a_second_as_it_may_make() {
    let mut scene = Scene::new("");
    let (mut greedy, mut other) = (scene.attach(GREEDY, "A"), scene.attach(OTHER, "B"));
    let end_ns = scene.now_ns + 2 * SECOND_NS;
    let (mut asked, mut answered, mut slowest_ns) = (0, 0, 0);
    while scene.now_ns < end_ns {
        while asked < answered + 64 {
            greedy.send(&Request::Cancel { connect: 1 }, &[]);
            asked += 1;
        }
        other.send(&Request::Cancel { connect: 1 }, &[]);
        let since_ns = scene.now_ns;
        scene.poll();
        assert_eq!(other.answers(), 1, "at once, whatever the other user does");
        answered += greedy.answers();
        slowest_ns = slowest_ns.max(scene.now_ns - since_ns);
        scene.now_ns += 1_000_000;
    }
    // A burst of a quarter of a second, without what attaching has cost.
    let most = 2 * REQUESTS_PER_S + REQUESTS_PER_S / 4 - 4;
    // The last 10 ms' worth may not be due yet.
    assert!(
        answered <= most && answered > most - 64 - REQUESTS_PER_S / 100,
        "{answered} of {most}"
    );
    let waits = scene.rows(Owner::User(GREEDY), Limit::Requests)[0].refused;
    assert!(waits > 100 && waits <= 200, "{waits} portions of 10 ms");
    assert_eq!(scene.rows(Owner::User(OTHER), Limit::Requests)[0].refused, 0);
}

#[test]
fn requests_with_storage_and_attachments_count_four_times() {
    let mut scene = Scene::new("");
    let mut greedy = scene.attach(GREEDY, "A");
    let options = os::storage::StorageOptions::default();
    let (_storage, lent) = os::storage::Storage::create("siga t", 4096, options).unwrap();
    let used = |scene: &Scene| scene.row(Owner::User(GREEDY), Limit::Requests).0;
    let before = used(&scene);
    assert_eq!(before, 4, "it has attached");
    // There is no such path, whatever is lent for it.
    let reply = scene.ask(&mut greedy, &rejoin("B", 1), &[&lent, &lent]);
    assert!(result(reply).is_err());
    assert_eq!(used(&scene) - before, 4);
    assert!(result(scene.ask(&mut greedy, &Request::Cancel { connect: 1 }, &[])).is_err());
    assert_eq!(used(&scene) - before, 5);
}

#[test]
fn guest_that_attaches_again_has_no_more_table_writes_than_one_that_stays() {
    let mut scene = Scene::new("");
    let address = || std::net::Ipv4Addr::from(0x0a07_f001).into();
    let mut answered = 0;
    // More than its user may cause at once: it is stopped before its user is.
    for _ in 0..TABLE_WRITES_PER_S {
        let mut guest = scene.attach(GREEDY, "A");
        // It is no member, which the host looks for in the table too.
        let reply = scene.ask(&mut guest, &Request::Register { address: address() }, &[]);
        answered += u64::from(reply.is_some());
        drop(guest);
        scene.poll();
    }
    assert_eq!(answered, TABLE_WRITES_PER_S / 2 / 4, "a quarter of a second's at once");
    let mut other = scene.attach(GREEDY, "A2");
    let reply = scene.ask(&mut other, &Request::Register { address: address() }, &[]);
    assert!(reply.is_some(), "another guest of its user goes on");
    // What has passed does not count.
    scene.now_ns += SECOND_NS;
    let mut guest = scene.attach(GREEDY, "A");
    let reply = scene.ask(&mut guest, &Request::Register { address: address() }, &[]);
    assert!(reply.is_some());
}

#[test]
fn table_writes_of_a_user_are_as_many_in_a_second_as_it_may_cause() {
    let mut scene = Scene::new("");
    let mut greedy = [scene.attach(GREEDY, "A1"), scene.attach(GREEDY, "A2")];
    let mut other = scene.attach(OTHER, "B");
    let counters = || {
        let bytes =
            net::lan::counters::BOARD_BYTES.next_multiple_of(os::storage::STORAGE_GRAIN_BYTES);
        os::storage::Storage::create("siga t", bytes, os::storage::StorageOptions::default())
            .unwrap()
    };
    let join = Request::JoinLan {
        lan: "hs0".parse().unwrap(),
        mac: [0; 6],
        address: WantedAddress::Chosen,
        captures: false,
        routes: false,
    };
    let lent = [counters(), counters(), counters()];
    for (party, (_, lent)) in greedy.iter_mut().chain([&mut other]).zip(&lent) {
        let joined = scene.ask(party, &join, &[lent]);
        assert!(matches!(joined, Some(Reply::LanJoined(_))), "{joined:?}");
    }
    let address = |number: u32| std::net::Ipv4Addr::from(0x0a07_f000 + number).into();
    let end_ns = scene.now_ns + 4 * SECOND_NS;
    let (mut asked, mut answered) = ([0; 2], [0; 2]);
    while scene.now_ns < end_ns {
        for (number, guest) in greedy.iter_mut().enumerate() {
            while asked[number] < answered[number] + 64 {
                let (address, is_new) = (address(3 + number as u32), asked[number] % 2 == 0);
                let request = if is_new {
                    Request::Register { address }
                } else {
                    Request::Unregister { address }
                };
                guest.send(&request, &[]);
                asked[number] += 1;
            }
        }
        scene.poll();
        for (answered, guest) in answered.iter_mut().zip(&mut greedy) {
            *answered += guest.answers();
        }
        scene.now_ns += 10_000_000;
        if scene.now_ns.is_multiple_of(SECOND_NS) {
            let reply = scene.ask(&mut other, &Request::Register { address: address(2) }, &[]);
            assert_eq!(result(reply), Ok(()));
        }
    }
    let most = 4 * TABLE_WRITES_PER_S + TABLE_WRITES_PER_S / 4;
    let answered: u64 = answered.iter().sum();
    assert!(answered <= most && answered > most - 64, "{answered} of {most}");
    let (_, most, waited) = scene.row(Owner::User(GREEDY), Limit::TableWrites);
    assert!(most == TABLE_WRITES_PER_S && waited > 100, "{waited}");
}

/// Addresses that a guest registers beside greedy ones: no more than it may at once.
const GUEST_ROUNDS: usize = 30;

/// Guests of one user on a LAN: those that change its table all the time, and one that registers an address now and then.
/// Returns the polls until each of these is answered, each poll at the time that the one before has asked for.
fn polls_until_a_guest_beside_greedy_ones_is_answered(greedy: usize) -> (Scene, Vec<usize>) {
    let mut scene = Scene::new("");
    let bytes = net::lan::counters::BOARD_BYTES.next_multiple_of(os::storage::STORAGE_GRAIN_BYTES);
    let options = os::storage::StorageOptions::default();
    let join = Request::JoinLan {
        lan: "hs0".parse().unwrap(),
        mac: [0; 6],
        address: WantedAddress::Chosen,
        captures: false,
        routes: false,
    };
    let mut storages = Vec::new();
    let mut parties: Vec<Party> = Vec::new();
    for number in 0..=greedy {
        let mut party = scene.attach(GREEDY, &format!("A{number}"));
        let (storage, lent) = os::storage::Storage::create("siga t", bytes, options).unwrap();
        let joined = scene.ask(&mut party, &join, &[&lent]);
        assert!(matches!(joined, Some(Reply::LanJoined(_))), "{joined:?}");
        storages.push((storage, lent));
        parties.push(party);
    }
    let mut other = parties.pop().unwrap();
    let address = |number: usize| std::net::Ipv4Addr::from(0x0a07_f000 + number as u32).into();
    let mut asked = 0;
    let mut waits = Vec::new();
    for round in 0..GUEST_ROUNDS {
        other.send(&Request::Register { address: address(200 + round % 2) }, &[]);
        let mut polls = 0;
        loop {
            for (number, party) in parties.iter_mut().enumerate() {
                let answered = party.answers() as usize;
                for _ in 0..if asked == 0 { 64 } else { answered } {
                    let address = address(number);
                    party.send(&Request::Register { address }, &[]);
                }
            }
            asked += 1;
            polls += 1;
            let next = scene.host.poll(scene.now_ns).unwrap();
            if other.answers() > 0 {
                break;
            }
            assert!(polls < 1000, "the guest is never answered");
            scene.now_ns += next.map_or(0, |next| next.as_nanos() as u64);
        }
        waits.push(polls);
    }
    drop(storages);
    (scene, waits)
}

#[test]
fn guest_that_changes_the_table_all_the_time_leaves_its_user_half_of_the_writes() {
    let (scene, waits) = polls_until_a_guest_beside_greedy_ones_is_answered(1);
    assert_eq!(waits, vec![1; GUEST_ROUNDS], "at once");
    let (_, most, waited) = scene.row(Owner::Guest(name("A0")), Limit::TableWrites);
    assert_eq!((most, waited), (TABLE_WRITES_PER_S / 2, 1));
}

#[test]
fn guests_that_change_the_table_all_the_time_let_each_other_guest_have_its_turn() {
    let (_, waits) = polls_until_a_guest_beside_greedy_ones_is_answered(5);
    assert!(waits.iter().all(|polls| *polls <= 16), "{waits:?}");
}

#[test]
fn users_have_equal_parts_of_the_hosts_time_however_many_connections_they_have() {
    let settings = "[[user]]\nname = \"*\"\nrequests_per_s = 1000000000\n";
    let mut scene = Scene::new(settings);
    let mut greedy: Vec<Party> =
        (0..40).map(|number| scene.attach(GREEDY, &format!("A{number}"))).collect();
    let mut other = scene.attach(OTHER, "B");
    for party in &mut greedy {
        (0..200).for_each(|_| party.send(&Request::Cancel { connect: 1 }, &[]));
    }
    (0..200).for_each(|_| other.send(&Request::Cancel { connect: 1 }, &[]));
    let mut answered = [0, 0];
    while answered[1] < 200 {
        scene.poll();
        answered[0] += greedy.iter_mut().map(Party::answers).sum::<u64>();
        answered[1] += other.answers();
    }
    // A round may end in the middle of one user's part.
    assert!(answered[0] <= 2 * 128 + 8, "{answered:?}");
}

#[test]
fn connections_of_a_user_that_do_not_attach_leave_room_for_others() {
    let mut scene = Scene::new("");
    let mut strangers: Vec<Party> = (0..64).map(|_| scene.connect(GREEDY)).collect();
    let mut one_more = scene.connect(GREEDY);
    let refused = Some(Reply::Failed {
        problem: reached(Limit::Strangers, Owner::User(GREEDY), 64),
        data: NO_DATA,
    });
    assert_eq!(one_more.answer(), refused);
    scene.attach(OTHER, "B");
    // Users without a rule have one account among them.
    let mut nobodies: Vec<Party> = (0..64).map(|user| scene.connect(80_000 + user)).collect();
    assert!(nobodies.iter_mut().all(|party| party.answer().is_none()));
    let problem = reached(Limit::Strangers, Owner::Others, 64);
    let refused = Some(Reply::Failed { problem, data: NO_DATA });
    assert_eq!(scene.connect(90_000).answer(), refused);
    scene.attach(OTHER, "B1");
    scene.now_ns += 6 * SECOND_NS;
    scene.poll();
    assert!(strangers.iter_mut().all(|party| party.answer().is_none()));
    assert_eq!(scene.row(Owner::Host, Limit::Strangers).0, 0, "they did not attach in time");
}

#[test]
fn connection_whose_user_has_to_wait_is_not_detached_meanwhile() {
    let mut scene = Scene::new("[[user]]\nname = 70001\nrequests_per_s = 1\n");
    // Each takes what its user may ask for in four seconds, and they are read one after the other.
    let _first = scene.attach(GREEDY, "A0");
    let mut waiting: Vec<Party> = (1..=12).map(|_| scene.connect(GREEDY)).collect();
    let silent = scene.connect(GREEDY);
    for (number, party) in waiting.iter_mut().enumerate() {
        party.send(&Request::Attach { name: name(&format!("A{}", number + 1)) }, &[]);
    }
    let mut attached = 0;
    for _ in 0..60 {
        scene.now_ns += SECOND_NS;
        scene.poll();
        attached += waiting.iter_mut().filter_map(Party::answer).count();
    }
    assert_eq!(attached, 12);
    assert_eq!(scene.row(Owner::User(GREEDY), Limit::Strangers).0, 0);
    assert!(
        matches!(silent.packets.receive(&mut [0; PACKET_BYTES_MAX]), Ok(packet) if packet.bytes == 0)
    );
}

#[test]
fn connection_is_read_before_it_is_detached_though_the_host_was_late() {
    let mut scene = Scene::new("");
    let mut late = scene.connect(GREEDY);
    let mut others: Vec<Party> = (0..40).map(|_| scene.connect(GREEDY)).collect();
    scene.poll();
    for party in &mut others {
        // More than the user's part of one round, and wrong: a connection is to attach first.
        (0..4).for_each(|_| party.send(&Request::Cancel { connect: 1 }, &[]));
    }
    late.send(&Request::Attach { name: name("A") }, &[]);
    scene.now_ns += 60 * SECOND_NS;
    scene.poll();
    scene.poll();
    assert_eq!(late.answer(), Some(Reply::Attached));
}

#[test]
fn however_many_users_do_not_attach_the_next_can() {
    let mut scene = Scene::new("");
    let text = "[[guest]]\nname = \"*\"\nusers = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
    scene.host = Host::new(System::parse(&Source::of("s.toml", text)).unwrap()).unwrap().0;
    let mut strangers: Vec<Party> = Vec::new();
    for user in 1..=8 {
        strangers.extend((0..64).map(|_| scene.connect(user)));
    }
    // With 64 for each user, four users took all that there are.
    strangers.retain_mut(|party| party.answer().is_none());
    assert!(strangers.len() > 192, "{}", strangers.len());
    let own = Credentials::own().user;
    assert!(scene.connect(own).answer().is_none(), "of the host's own user");
    assert_eq!(scene.row(Owner::Host, Limit::Strangers).2, 0);
    drop(strangers);
    scene.poll();
    scene.attach(9, "A");
}

#[test]
fn connection_is_charged_with_what_is_read_of_the_guest_whose_name_it_wants() {
    let mut scene = Scene::new("");
    let mut guest = scene.attach(GREEDY, "A");
    (0..100).for_each(|_| guest.send(&Request::Cancel { connect: 1 }, &[]));
    let mut other = scene.connect(GREEDY);
    other.send(&Request::Attach { name: name("A") }, &[]);
    let (_, number) = *scene.host.strangers.first().unwrap();
    let (cost, _) = scene.host.hear(number, 1);
    assert_eq!(cost as u64, super::ATTACHING_COST as u64 + guest.answers());
    let taken = Some(Reply::Failed { problem: Problem::NameTaken, data: NO_DATA });
    assert_eq!(other.answer(), taken);
}

/// A socket whose last close waits until the other side is dropped: any process can make one.
fn lingering() -> (OwnedFd, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, _) = listener.accept().unwrap();
    let linger = Some(std::time::Duration::from_secs(40));
    rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
    stream.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut stream, &[0; 1 << 16]).is_ok() {}
    (stream.into(), reader)
}

#[test]
fn user_whose_descriptors_wait_to_be_closed_is_shut_out_and_nobody_else() {
    let mut scene = Scene::new("");
    let attach = |name: &str| Request::Attach { name: name.parse().unwrap() };
    let (slow, reader) = lingering();
    let mut slow = Some(slow);
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let (mut refusals, mut kept) = (0, Vec::new());
    for number in 0..20 {
        let mut party = scene.connect(GREEDY);
        if let Some(Reply::Failed { problem, .. }) = party.answer() {
            assert_eq!(problem, reached(Limit::Refused, Owner::User(GREEDY), 64));
            refusals += 1;
            continue;
        }
        // The first that is passed is the last of its socket, so its close waits, and all others wait behind it.
        let last = slow.take();
        let passed: Vec<_> = last.iter().chain([&null; 31]).take(31).collect();
        party.send(&attach(&format!("A{number}")), &passed);
        drop(last);
        scene.poll();
        assert_eq!(party.answer(), None, "a stranger passes nothing");
        kept.push(party);
    }
    assert!(refusals >= 16, "{refusals} of 20");
    let (used, most, refused) = scene.row(Owner::User(GREEDY), Limit::Refused);
    assert!(used > most && used < 3 * 32 && refused == refusals, "{used} of {most}");
    // Another user attaches, passes what is no storage, and attaches again.
    let mut other = scene.attach(OTHER, "B");
    other.send(&Request::Cancel { connect: 1 }, &[&null]);
    scene.poll();
    assert_eq!(other.answer(), None);
    while scene.row(Owner::User(OTHER), Limit::Refused).0 > 0 {
        std::thread::yield_now();
    }
    scene.attach(OTHER, "B");
    drop(reader);
    while scene.row(Owner::User(GREEDY), Limit::Refused).0 > 0 {
        std::thread::yield_now();
    }
    scene.attach(GREEDY, "A");
}

#[test]
fn guest_of_a_later_build_is_told_what_the_host_cannot_do_and_stays() {
    let mut scene = Scene::new("");
    let mut guest = scene.attach(GREEDY, "A");
    let mut unknown = Request::Observe.bytes(7);
    unknown[6] = 99;
    guest.packets.send(&unknown, &[]).unwrap();
    scene.poll();
    assert_eq!(guest.answer(), Some(Reply::Failed { problem: Problem::Request, data: NO_DATA }));
    let reply = scene.ask(&mut guest, &Request::Cancel { connect: 1 }, &[]);
    assert_eq!(result(reply), Err(Problem::NoPath));
}

#[test]
fn path_is_rejoined_only_by_guests_that_may_have_one() {
    let mut scene = Scene::new("");
    let text = "[[guest]]\nname = \"A\"\nusers = [70001]\nconnect = [\"B\"]\n\
                [[guest]]\nname = \"B\"\nusers = [70002]\n[[guest]]\nname = \"C\"\nusers = [70002]\n";
    scene.host = Host::new(System::parse(&Source::of("s.toml", text)).unwrap()).unwrap().0;
    let (_side, SideDescriptors { board, .. }) = Side::create(SHAPE).unwrap();
    let parties = [("A", GREEDY), ("B", OTHER), ("C", OTHER)];
    let mut parties = parties.map(|(name, user)| scene.attach(user, name));
    for (party, peer, expected) in [
        (0, "B", Ok(())),
        // It was asked, and may not ask itself.
        (1, "A", Ok(())),
        (0, "C", Err(Problem::NotAuthorised)),
        (2, "A", Err(Problem::NotAuthorised)),
    ] {
        let reply = scene.ask(&mut parties[party], &rejoin(peer, 1), &[&board]);
        assert_eq!(result(reply), expected, "{party} with {peer}");
    }
}

#[test]
fn guest_that_does_not_read_costs_no_wake_ups() {
    let mut scene = Scene::new("[[user]]\nname = \"*\"\nrequests_per_s = 1000000000\n");
    let mut target = scene.attach(OTHER, "B");
    let mut asking = scene.attach(GREEDY, "A");
    let (_side, SideDescriptors { board, lines }) = Side::create(SHAPE).unwrap();
    let mut serial = 0;
    while !scene.host.behind.contains(&name("B")) {
        serial += 1;
        assert!(serial < 10_000, "it is behind some time");
        asking.serial = serial;
        asking.send(&connect("B"), &[&board, &lines]);
        scene.poll();
        asking.send(&Request::Cancel { connect: serial + 1 }, &[]);
        scene.poll();
        asking.answers();
    }
    asking.send(&connect("B"), &[&board, &lines]);
    scene.poll();
    assert_eq!(scene.host.poll(scene.now_ns).unwrap(), None, "nothing to do, and no time");
    // What it was not notified of comes when it reads.
    let mut buffer = [0; PACKET_BYTES_MAX];
    let mut pending = 0;
    while scene.host.behind.contains(&name("B")) || pending == 0 {
        while let Ok(packet) = target.packets.receive(&mut buffer) {
            let reply = Reply::parse(&buffer[..packet.bytes]).unwrap().1;
            pending += usize::from(matches!(reply, Reply::Pending(_)));
        }
        scene.poll();
    }
    let _ = target.answer();
}
