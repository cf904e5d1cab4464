//! Guests whose host is replaced, and connections that somebody gives up.

mod common;

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fabric::control::{
    Kind, Limit, Owner, PACKET_BYTES_MAX, Pending, Reached, Reply, Request, VERSION,
    version_refused,
};
use fabric::path::Shape;
use os::packets::{Listener, Packets};
use os::poller::{wait_any, wait_readable};

use siga::connect::Scope;
use siga::error::{Problem, ResourceError};
use siga::host::report::{PathState, ResourceScope, SystemReport};
use siga::host::{Embedded, ObserveError, Observer, System};
use siga::lan::{Address, Lan, LanOptions, Member, Offload};
use siga::{
    AttachError, AttachmentState, ConnectError, Guest, Path, PathOptions, Reason, Served, Wait,
    Waiter,
};

/// A place where hosts listen, one after the other.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("siga-hosts-{name}-{}", std::process::id());
        Place(std::env::temp_dir().join(name))
    }

    fn host(&self) -> Embedded {
        let mut system = System::open();
        system.socket = Some(self.0.clone());
        Embedded::start(system).unwrap()
    }

    fn guest(&self, name: &str) -> Guest {
        Guest::attach(&self.0, name).unwrap()
    }

    /// Asks the host until it says what is expected.
    fn until(&self, guests: &[&Guest], expected: impl Fn(&SystemReport) -> bool) {
        let observer = Observer::attach(&self.0).unwrap();
        while !expected(&observer.query().unwrap()) {
            guests.iter().for_each(|guest| guest.poll());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn joined(client: &Guest, server: &Guest) -> (Path, Path) {
    common::joined(client, server, &PathOptions::default())
}

/// How long to wait before others have their turn.
const BLINK: Duration = Duration::from_millis(1);

/// Where the version stands in a packet.
const VERSION_AT: std::ops::Range<usize> = 4..6;

fn received(packets: &Packets) -> Vec<u8> {
    wait_readable(packets.as_fd(), None).unwrap();
    let mut buffer = [0; PACKET_BYTES_MAX];
    let packet = packets.receive(&mut buffer).unwrap();
    buffer[..packet.bytes].to_vec()
}

#[test]
fn older_guest_is_told_in_its_own_version_that_it_is_too_old() {
    let place = Place::new("older-guest");
    let _host = place.host();
    let packets = Packets::connect(&place.0).unwrap();
    let mut attach = Request::Attach { name: "OLD".parse().unwrap() }.bytes(7);
    attach[VERSION_AT].copy_from_slice(&1_u16.to_le_bytes());
    packets.send(&attach, &[]).unwrap();
    let mut told = received(&packets);
    assert_eq!(told[VERSION_AT], 1_u16.to_le_bytes());
    told[VERSION_AT].copy_from_slice(&VERSION.to_le_bytes());
    let failed = Reply::Failed { problem: Problem::Version, data: [0; 16] };
    assert_eq!(Reply::parse(&told), Ok((7, failed)));
    assert!(received(&packets).is_empty(), "and the connection ends");
}

#[test]
fn guest_and_observer_of_an_older_host_learn_what_is_wrong() {
    let place = Place::new("older-host");
    let listener = Listener::bind(&place.0, 0o600).unwrap();
    let host = std::thread::spawn(move || {
        for _ in 0..2 {
            wait_readable(listener.as_fd(), None).unwrap();
            let packets = listener.accept().unwrap();
            let serial = received(&packets)[8..12].try_into().unwrap();
            packets.send(&version_refused(1, u32::from_le_bytes(serial)), &[]).unwrap();
        }
    });
    let refused = Guest::attach(&place.0, "NEW").unwrap_err();
    assert!(matches!(refused, AttachError::Refused { problem: Problem::Version, .. }), "{refused}");
    let refused = Observer::attach(&place.0).unwrap_err();
    assert!(matches!(refused, ObserveError::Refused(Problem::Version)), "{refused}");
    host.join().unwrap();
}

#[test]
fn guests_attach_to_the_next_host_and_it_accounts_for_their_paths() {
    let place = Place::new("next");
    let host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let (mut ours, mut theirs) = joined(&client, &server);
    drop(host);
    ours.send(b"without a host").unwrap();
    assert_eq!(theirs.receive().unwrap().body, b"without a host");
    let _host = place.host();
    place.until(&[&client, &server], |report| {
        report.guests.len() == 2
            && report.paths.iter().any(|path| path.state == PathState::Joined)
            && ours.number() == report.paths[0].path
    });
    assert!(client.is_attached() && server.is_attached());
    ours.send(b"with another").unwrap();
    assert_eq!(theirs.receive().unwrap().body, b"with another");
    let (mut again, mut other) = joined(&client, &server);
    again.send(b"and a new path").unwrap();
    assert_eq!(other.receive().unwrap().body, b"and a new path");
}

#[test]
fn attachments_are_readable_when_the_host_is_lost_when_one_refuses_and_when_there_is_another() {
    let place = Place::new("attachment");
    let host = place.host();
    let guest = place.guest("GUEST");
    let followers = [(); 2].map(|()| guest.attachment().unwrap());
    let await_state = |state: AttachmentState| {
        // Each hears of it, whether the other has asked or not.
        for follower in &followers {
            while wait_any([Some(follower.as_fd())], Some(Duration::ZERO)).unwrap() == [false] {
                guest.poll();
            }
            assert_eq!(follower.state(), state);
            assert_eq!(wait_any([Some(follower.as_fd())], Some(Duration::ZERO)).unwrap(), [false]);
        }
    };
    assert!(followers.iter().all(|follower| follower.state() == AttachmentState::Attached));
    drop(host);
    await_state(AttachmentState::Alone);
    let _host = place.host();
    let other = place.guest("GUEST");
    await_state(AttachmentState::Refused(Problem::NameTaken));
    assert_eq!(guest.attachment().unwrap().state(), AttachmentState::Refused(Problem::NameTaken));
    drop(other);
    await_state(AttachmentState::Attached);
}

#[test]
fn host_that_cannot_account_a_path_yet_is_told_of_it_again() {
    let place = Place::new("lacking");
    let host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let (ours, _theirs) = joined(&client, &server);
    drop((host, server));
    let listener = Listener::bind(&place.0, 0o600).unwrap();
    let packets = loop {
        client.poll();
        if let Ok(packets) = listener.accept() {
            break packets;
        }
    };
    // All of them can pass: a limit has room again when something else ends.
    let reached = Reached { limit: Limit::Mappings, owner: Owner::User(7), most: 1 };
    let mut problems = [
        Problem::HostResources,
        Problem::Limit(reached),
        Problem::OwnPathLimit,
        Problem::StorageLimit,
    ]
    .into_iter();
    let mut buffer = [0; PACKET_BYTES_MAX];
    while ours.number() != 77 {
        client.poll();
        let Ok(packet) = packets.receive(&mut buffer) else { continue };
        let (serial, request) = Request::parse(&buffer[..packet.bytes]).unwrap();
        let reply = match request {
            Request::Attach { .. } => Reply::Attached,
            Request::Rejoin { .. } => match problems.next() {
                Some(problem) => Reply::Failed { problem, data: [0; 16] },
                None => Reply::Done { path: 77 },
            },
            other => panic!("{other:?}"),
        };
        packets.send(&reply.bytes(serial), &[]).unwrap();
    }
}

#[test]
fn guest_is_ready_for_an_answer_that_came_while_it_looked_for_something_else() {
    let place = Place::new("answer");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let _accepted = server.accept().unwrap();
    while !client.has_news() {
        assert!(client.pending().is_none(), "this takes in the answer too");
    }
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(Served::Guest(client)).unwrap();
    assert_eq!(waiter.wait().unwrap().0, key);
    let Some(Served::Guest(client)) = waiter.get_mut(key) else { panic!("the guest") };
    assert!(client.try_complete(&mut connecting).unwrap().is_some());
    assert!(!client.has_news());
    assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
}

fn is_readable(guest: &Guest) -> bool {
    wait_any([Some(guest.as_fd())], Some(Duration::ZERO)).unwrap() == [true]
}

/// A program with an epoll of its own.
#[test]
fn connection_left_behind_by_one_that_is_handed_out_makes_the_guest_readable() {
    let place = Place::new("left-behind");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let options = PathOptions::default();
    let asked = [(); 2].map(|()| client.start_connecting("SERVER", &options).unwrap());
    // The host has answered, so it has passed on what was asked before.
    client.identify("RESOURCE", Scope::Local).unwrap();
    server.poll();
    assert!(!is_readable(&server), "it has polled");
    let first = server.pending().unwrap();
    assert!(is_readable(&server));
    server.poll();
    assert!(!is_readable(&server));
    let second = server.pending().unwrap();
    assert!(!is_readable(&server) && server.pending().is_none());
    // An answer that is left is told of until the next poll.
    server.refuse(first, [0; 16]);
    while !client.has_news() {
        assert!(client.pending().is_none());
    }
    assert!(client.pending().is_none() && is_readable(&client));
    client.poll();
    assert!(client.has_news() && !is_readable(&client));
    server.refuse(second, [0; 16]);
    drop(asked);
}

#[test]
fn waiter_hears_of_news_that_several_verbs_have_passed_by() {
    let place = Place::new("passed-by");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(Served::Guest(server)).unwrap();
    assert!(waiter.prepare_wait());
    let Some(Served::Guest(server)) = waiter.get(key) else { panic!("the guest") };
    let mut asked = server.start_connecting("CLIENT", &PathOptions::default()).unwrap();
    let _connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    while !server.has_news() {
        assert!(server.try_complete(&mut asked).unwrap().is_none());
    }
    // The second finds nothing new.
    assert!(server.try_complete(&mut asked).unwrap().is_none());
    assert!(server.has_news());
    assert_eq!(waiter.try_next().unwrap().map(|(key, _)| key), Some(key));
}

#[test]
fn waiter_hears_of_news_that_were_polled_past_it() {
    let place = Place::new("polled-past");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(Served::Guest(server)).unwrap();
    assert!(waiter.prepare_wait());
    let _connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let Some(Served::Guest(server)) = waiter.get(key) else { panic!("the guest") };
    while !server.has_news() {
        server.poll();
    }
    server.poll();
    assert_eq!(waiter.try_next().unwrap().map(|(key, _)| key), Some(key));
}

#[test]
fn connection_is_completed_by_the_guest_that_asked_for_it_and_no_other() {
    let place = Place::new("others");
    let _host = place.host();
    let (client, server, other) =
        (place.guest("CLIENT"), place.guest("SERVER"), place.guest("OTHER"));
    let options = PathOptions::default();
    // Both have asked their first question, so the answers have the same number.
    let mut ours = client.start_connecting("SERVER", &options).unwrap();
    let mut theirs = other.start_connecting("SERVER", &options).unwrap();
    let mut accepted = [server.accept().unwrap(), server.accept().unwrap()];
    accepted.sort_by_key(Path::peer);
    while !client.has_news() || !other.has_news() {
        client.poll();
        other.poll();
    }
    assert!(matches!(other.complete(&mut ours), Err(ConnectError::OtherGuest)));
    assert!(matches!(other.try_complete(&mut ours), Err(ConnectError::OtherGuest)));
    assert!(matches!(client.complete(&mut theirs), Err(ConnectError::OtherGuest)));
    // Nothing was changed by that.
    let paths = [client.complete(&mut ours).unwrap(), other.complete(&mut theirs).unwrap()];
    assert!(matches!(client.complete(ours), Err(ConnectError::Completed)));
    for (mut path, mut accepted) in paths.into_iter().zip(accepted) {
        let name = accepted.peer();
        path.send(name.as_str().as_bytes()).unwrap();
        let message = accepted.try_receive().unwrap().expect("sent to whom it is for");
        assert_eq!(message.body, name.as_str().as_bytes());
    }
}

#[test]
fn path_dropped_while_the_next_host_learns_of_it_ends_no_other() {
    let place = Place::new("dropping");
    let former = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut paths: Vec<_> = (0..8).map(|_| joined(&client, &server)).collect();
    // One of them has both ends here.
    let (own, other_own) = joined(&client, &client);
    drop(former);
    let (mut next, handle) = host::Host::new(System::open()).unwrap();
    next.listen(&place.0).unwrap();
    let mut now_ns = os::processor::now_ns();
    for is_attached in [false, true] {
        while client.is_attached() != is_attached {
            now_ns += 1_000_000_000;
            next.poll(now_ns).unwrap();
            client.poll_at(now_ns);
        }
    }
    // The host has been told of all paths, and has not said yet which number each has.
    drop((paths.remove(0), own));
    let driving = std::thread::spawn(move || host::run(next));
    place.until(&[&client], |report| report.paths.len() == 8);
    let numbers =
        |report: &SystemReport| -> Vec<u64> { report.paths.iter().map(|path| path.path).collect() };
    let report = Observer::attach(&place.0).unwrap().query().unwrap();
    for number in paths.iter().map(|(ours, _)| ours.number()).chain([other_own.number()]) {
        assert!(numbers(&report).contains(&number), "{number} of {:?}", numbers(&report));
    }
    drop(other_own);
    place.until(&[&client], |report| report.paths.len() == 7);
    handle.stop();
    driving.join().unwrap().unwrap();
}

#[test]
fn host_that_is_behind_is_told_everything_in_the_end() {
    // More than a socket holds of what is said about each.
    const PATHS: usize = 600;
    os::memory::allow_descriptors(1 << 14);
    let place = Place::new("behind");
    let former = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut ours: Vec<_> = (0..PATHS).map(|_| joined(&client, &server).0).collect();
    drop(former);
    let (mut next, handle) = host::Host::new(System::open()).unwrap();
    next.listen(&place.0).unwrap();
    let mut now_ns = os::processor::now_ns();
    for is_attached in [false, true] {
        while client.is_attached() != is_attached {
            now_ns += 1_000_000_000;
            next.poll(now_ns).unwrap();
            client.poll_at(now_ns);
        }
    }
    let mut has_numbers = false;
    for _ in 0..PATHS {
        now_ns += 1_000_000_000;
        next.poll(now_ns).unwrap();
        client.poll_at(now_ns);
        let mut numbers: Vec<_> = ours.iter().map(Path::number).collect();
        numbers.sort_unstable();
        has_numbers = numbers.iter().copied().eq(1..=PATHS as u64);
    }
    assert!(has_numbers, "the host accounts for each of them");
    // Nobody reads meanwhile.
    ours.truncate(10);
    let asked = client.start_connecting("CLIENT", &PathOptions::default());
    assert!(matches!(asked, Err(ConnectError::HostBehind)), "{asked:?}");
    let driving = std::thread::spawn(move || host::run(next));
    place.until(&[&client], |report| report.paths.len() == 10);
    drop(client.start_connecting("CLIENT", &PathOptions::default()).unwrap());
    handle.stop();
    driving.join().unwrap().unwrap();
}

#[test]
fn guest_that_only_asks_is_not_behind_for_ever() {
    // More than the sockets hold of questions, and of answers that nobody asks for.
    const QUESTIONS: usize = 5000;
    const PATIENCE: Duration = Duration::from_secs(20);
    let place = Place::new("asks");
    let _host = place.host();
    let (client, _server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut began = Instant::now();
    let mut asked = 0;
    while asked < QUESTIONS {
        match client.start_connecting("SERVER", &PathOptions::default()) {
            Ok(connecting) => {
                drop(connecting);
                asked += 1;
                began = Instant::now();
            }
            Err(ConnectError::HostBehind) => {
                assert!(began.elapsed() < PATIENCE, "behind for ever, after {asked} questions");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error} after {asked} questions"),
        }
    }
}

/// A guest answers each connection that it refuses: one more packet that such a host leaves unread.
#[test]
fn host_that_asks_and_reads_nothing_is_given_up() {
    // More than the sockets hold, and than a guest keeps for a host.
    const REFUSALS: u64 = 20_000;
    let place = Place::new("unread");
    let listener = Listener::bind(&place.0, 0o600).unwrap();
    let host = std::thread::spawn(move || {
        wait_readable(listener.as_fd(), None).unwrap();
        let packets = listener.accept().unwrap();
        let serial = received(&packets)[8..12].try_into().unwrap();
        packets.send(&Reply::Attached.bytes(u32::from_le_bytes(serial)), &[]).unwrap();
        for path in 1.. {
            let pending = Reply::Pending(Pending {
                path,
                from: "CLIENT".parse().unwrap(),
                resource: None,
                kind: Kind::MESSAGES,
                flags: 0,
                data: [0; 16],
                shape: Shape::SIMPLE,
            });
            while let Err(error) = packets.send(&pending.bytes(0), &[]) {
                match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::OutOfMemory => std::thread::yield_now(),
                    // The guest has hung up.
                    _ => return,
                }
            }
        }
    });
    let server = place.guest("SERVER");
    let mut refusals = 0;
    while server.is_attached() {
        let Some(pending) = server.pending() else { continue };
        server.refuse(pending, [0; 16]);
        refusals += 1;
        assert!(refusals < REFUSALS, "all are kept for a host that reads nothing");
    }
    host.join().unwrap();
    let _next = place.host();
    while !server.is_attached() {
        server.poll();
    }
}

#[test]
fn connection_that_waited_at_a_former_host_is_none_of_the_next() {
    let place = Place::new("former");
    let host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let options = PathOptions::default();
    let asked = client.start_connecting("SERVER", &options).unwrap();
    let former = server.wait_for_pending(|_| true).unwrap();
    drop(host);
    while server.is_attached() {
        server.poll();
    }
    let _host = place.host();
    let other = place.guest("OTHER");
    place.until(&[&server], |report| report.guests.iter().any(|guest| guest.name == "SERVER"));
    // Hosts count their paths from the same number on.
    let again = other.start_connecting("SERVER", &options).unwrap();
    let pending = server.wait_for_pending(|_| true).unwrap();
    assert_eq!(pending.path, former.path);
    server.refuse(former, [7; 16]);
    let refused = server.accept_pending(former, &options).unwrap_err();
    assert!(matches!(refused, ConnectError::Refused { problem: Problem::NoPath, .. }));
    let accepted = server.accept_pending(pending, &options).unwrap();
    assert_eq!(accepted.peer().as_str(), "OTHER");
    other.complete(again).unwrap();
    drop(asked);
}

#[test]
fn connection_dropped_after_it_was_accepted_leaves_no_path() {
    let place = Place::new("dropped");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    for is_heard_of in [false, true] {
        let connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
        let mut accepted = server.accept().unwrap();
        while is_heard_of && !client.has_news() {
            client.poll();
        }
        drop(connecting);
        let one_sided = PathState::OneSided;
        place.until(&[&client], |report| report.paths.iter().all(|path| path.state == one_sided));
        assert_eq!(accepted.receive().unwrap_err().reason, Reason::Gone);
        drop(accepted);
        place.until(&[&client], |report| report.paths.is_empty());
    }
}

#[test]
fn connection_asked_of_a_host_that_was_replaced_is_known_to_be_lost() {
    let place = Place::new("replaced");
    let host = place.host();
    let (client, _server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let options = PathOptions::default();
    let mut tried = client.start_connecting("SERVER", &options).unwrap();
    let waited = client.start_connecting("SERVER", &options).unwrap();
    drop(host);
    let _host = place.host();
    while client.is_attached() {
        client.poll();
    }
    while !client.is_attached() {
        client.poll();
    }
    assert!(client.has_news());
    assert!(matches!(client.try_complete(&mut tried), Err(ConnectError::HostGone)));
    assert!(matches!(client.complete(waited), Err(ConnectError::HostGone)));
    assert!(!client.has_news());
}

#[test]
fn members_of_a_lan_have_their_places_at_a_new_host() {
    let place = Place::new("lan");
    let host = place.host();
    let options = LanOptions { address: Address::Chosen, wait: Wait::Block, ..Default::default() };
    let mut members =
        ["A", "B", "C"].map(|name| Lan::join(place.guest(name), "hs0", &options).unwrap());
    let before = members.each_ref().map(|lan| lan.own().clone());
    let frame =
        |to: &Member, from: &Member| [&to.mac.0[..], &from.mac.0, &[0x88, 0xb5, 7]].concat();
    let exchange = |members: &mut [Lan; 3], from: usize, to: usize| {
        members[from].send(Offload::NONE, &frame(&before[to], &before[from])).unwrap();
        let sent = frame(&before[to], &before[from]);
        while members[to].receive_within(BLINK).unwrap().is_none_or(|frame| frame.bytes != sent) {
            let others = members.iter_mut().enumerate().filter(|(at, _)| *at != to);
            for (_, lan) in others {
                assert!(lan.try_receive().unwrap().is_none());
            }
        }
    };
    exchange(&mut members, 0, 1);
    drop(host);
    // The path that is there goes on without a host.
    exchange(&mut members, 1, 0);
    let _host = place.host();
    let observer = Observer::attach(&place.0).unwrap();
    loop {
        let lans = observer.query().unwrap().lans;
        let found: Vec<_> = lans[0].members.iter().map(|member| member.mac.clone()).collect();
        if found.len() == members.len() {
            assert_eq!(found, before.each_ref().map(|member| member.mac.to_string()));
            break;
        }
        for lan in &mut members {
            assert!(lan.receive_within(BLINK).unwrap().is_none());
        }
    }
    // But for the order in which they have come again.
    let after = members.each_ref().map(|lan| Member { life: 0, ..lan.own().clone() });
    assert_eq!(after, before.clone().map(|member| Member { life: 0, ..member }));
    exchange(&mut members, 0, 1);
    exchange(&mut members, 2, 0);
}

#[test]
fn resource_has_one_manager_until_it_is_revoked_and_a_new_host_hears_of_it() {
    let place = Place::new("resource");
    let host = place.host();
    let (one, other) = (place.guest("ONE"), place.guest("OTHER"));
    one.identify("PAYROLL", Scope::Global).unwrap();
    let refused = other.identify("PAYROLL", Scope::Global).unwrap_err();
    let taken = Problem::ResourceTaken;
    assert!(matches!(refused, ResourceError::Refused { problem } if problem == taken));
    other.identify("PAYROLL", Scope::Local).unwrap();
    other.revoke("PAYROLL", Scope::Local).unwrap();
    let refused = other.revoke("PAYROLL", Scope::Global).unwrap_err();
    let nobody = Problem::NoResource;
    assert!(matches!(refused, ResourceError::Refused { problem } if problem == nobody));
    drop(host);
    let _host = place.host();
    place.until(&[&one, &other], |report| {
        report.resources.iter().any(|resource| {
            resource.manager == "ONE"
                && resource.name == "PAYROLL"
                && resource.scope == ResourceScope::Global
        })
    });
}

#[test]
fn guest_in_a_waiter_finds_the_next_host_though_a_verb_lost_the_former() {
    let place = Place::new("lost");
    let host = place.host();
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let server = waiter.add(place.guest("SERVER")).unwrap();
    assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none(), "it sleeps");
    drop(host);
    // The verb takes in that the host is gone: nothing more comes from there.
    let refused = waiter.get(server).unwrap().identify("PAYROLL", Scope::Local).unwrap_err();
    assert!(matches!(refused, ResourceError::HostGone), "{refused}");
    let _next = place.host();
    let client = place.guest("CLIENT");
    let connect = move || loop {
        match client.connect("SERVER", &PathOptions::default()) {
            Err(ConnectError::Refused { problem: Problem::NotAttached, .. }) => {}
            connected => return connected.map(drop),
        }
    };
    let connecting = std::thread::spawn(connect);
    // Nobody but the waiter calls the server.
    assert_eq!(waiter.wait().unwrap().0, server);
    drop(waiter.get(server).unwrap().accept().unwrap());
    connecting.join().unwrap().unwrap();
}

#[test]
fn what_a_verb_takes_in_beside_its_answer_is_told_all_the_same() {
    let place = Place::new("beside");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut server = siga::iucv::IucvGuest::declare(server, Wait::Block).unwrap();
    assert!(server.prepare_wait(), "it sleeps");
    let options = siga::iucv::Options::DEFAULT;
    let mut client = siga::iucv::IucvGuest::declare(client, Wait::Block).unwrap();
    client.connect("SERVER", &options).unwrap();
    // The host has told the server before it answers this.
    server.guest().identify("PAYROLL", Scope::Local).unwrap();
    let event = server.event().unwrap();
    let siga::iucv::GuestEvent::ConnectionPending { path, .. } = event else { panic!("{event:?}") };
    assert!(client.prepare_wait(), "nobody has accepted");
    server.accept(path, &options).unwrap();
    client.guest().identify("STOCK", Scope::Local).unwrap();
    wait_readable(client.as_fd(), None).unwrap();
    let event = client.event().unwrap();
    assert!(matches!(event, siga::iucv::GuestEvent::ConnectionComplete { .. }), "{event:?}");
}

#[test]
fn what_one_verb_has_taken_in_is_told_after_others_that_take_in_nothing() {
    let place = Place::new("others-between");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let mut waiter = Waiter::new(Wait::Block).unwrap();
    let key = waiter.add(server).unwrap();
    assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none(), "it sleeps");
    let _connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let server = waiter.get(key).unwrap();
    // This takes in the connection beside its own answer; the others find nothing.
    server.identify("PAYROLL", Scope::Local).unwrap();
    let other = PathOptions { kind: siga::connect::Kind::IUCV, ..PathOptions::default() };
    assert!(server.accept_within(&other, Duration::ZERO).unwrap().is_none());
    assert_eq!(
        waiter.wait_within(Duration::from_secs(60)).unwrap().map(|found| found.0),
        Some(key)
    );
}

#[test]
fn connection_is_chosen_by_a_condition_that_uses_the_guest() {
    let place = Place::new("condition");
    let _host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let _connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let pending = server.wait_for_pending(|_| server.has_news()).unwrap();
    assert_eq!(pending.from, client.name());
}
