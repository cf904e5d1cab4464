//! An honest host with LANs and an honest member, and guests that register whatever a script says.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fabric::control::{Problem, Reply, Request, WantedAddress};
use fabric::name::LanName;
use host::report::{LanReport, MemberReport};
use net::lan::counters::BOARD_BYTES;
use net::lan::table::{LentTable, MEMBER_ADDRESSES_MAX, TABLE_BYTES};
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use os::words::LentWords;

use super::doorbell::descriptor;
use super::intruder::name;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, Watch};
use crate::plane::{Party, Plane};

const SYSTEM: &str = r#"
    [[guest]]
    name = "HONEST"
    [[guest]]
    name = "EVIL*"
    [[guest]]
    name = "STRANGER"
    [[lan]]
    name = "hs0"
    range = "10.1.0.0/28"
    members = ["HONEST", "EVIL*"]
    capture = ["EVIL3"]
    [[lan.member]]
    guest = "OWNER"
    mac = "02:00:00:00:00:05"
    addresses = ["10.1.0.5"]
    [[lan.member]]
    guest = "EVIL2"
    addresses = ["10.1.0.6"]
    vlans = [7]
    [[lan]]
    name = "hs1"
    range = "10.2.0.0/24"
    members = ["EVIL1"]
"#;

const GUESTS: [&str; 5] = ["EVIL1", "EVIL2", "EVIL3", "EVIL4", "STRANGER"];
const LANS: [&str; 3] = ["hs0", "hs1", "hs9"];

/// What the honest member has.
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));

/// What belongs to a guest that is not there.
const KEPT: &str = "10.1.0.5";
const KEPT_MAC: &str = "02:00:00:00:00:05";

/// Guests that join, register, give up and leave with any addresses and descriptors, attach and hang up, beside an honest
/// member.
///
/// # Panics
/// If two members have one address, or one that the system file gives to others; if the table says something else than the
/// host's report; if the honest member is not what it was.
pub fn lan_registration(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut plane = Plane::new(SYSTEM);
        let mut observer = plane.connect();
        assert_eq!(plane.answer(&mut observer, &Request::Observe, &[]), Reply::Attached);
        let mut honest = plane.attach("HONEST");
        let mut table = join_honestly(&mut plane, &mut honest);
        let mut others: [Option<Party>; GUESTS.len()] = Default::default();
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            let at = script.below(GUESTS.len());
            match (&mut others[at], script.below(16)) {
                (other @ None, _) => {
                    let mut party = plane.connect();
                    party.ask(&Request::Attach { name: name(GUESTS[at]) }, &[]);
                    *other = Some(party);
                }
                (other, 0) => *other = None,
                (Some(party), 1) => while party.receive().is_some() {},
                (Some(party), 2..8) => join(party, &mut script),
                (Some(party), 8..12) => {
                    party.ask(&Request::Register { address: address(&mut script) }, &[]);
                }
                (Some(party), 12) => {
                    party.ask(&Request::Unregister { address: address(&mut script) }, &[]);
                }
                (Some(party), 13) => _ = party.ask(&Request::LeaveLan, &[]),
                _ => _ = plane.turn(),
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT / 8) {
                check(&mut plane, &mut observer, &mut honest, &mut table);
            }
        }
        check(&mut plane, &mut observer, &mut honest, &mut table);
        drop(others);
        plane.settle();
        table.refresh(|_, _| {});
        assert_eq!(table.members().count(), 1, "members are left over");
    }
    watch.stop();
}

fn lan(name: &str) -> LanName {
    name.parse().expect("a name")
}

fn counters() -> OwnedFd {
    let bytes = BOARD_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
    Storage::create("siga counters", bytes, StorageOptions::default()).expect("storage").1
}

fn join_honestly(plane: &mut Plane, party: &mut Party) -> LentTable {
    let counters = counters();
    let (lan, address) = (lan("hs0"), WantedAddress::This(HONEST));
    let request = Request::JoinLan { lan, mac: [0; 6], address, captures: false, routes: false };
    let heard = plane.answer_with(party, &request, &[counters.as_fd()]);
    let Reply::LanJoined(joined) = heard.reply else { panic!("{:?} to a join", heard.reply) };
    assert_eq!(joined.address, Some(HONEST));
    let bytes = TABLE_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
    let table = Borrowed::borrow(&heard.descriptors[0], bytes..=bytes).expect("a table");
    LentTable::new(LentWords::borrow(table)).expect("of this version")
}

/// Asks to be a member, with counters or something else.
fn join(party: &mut Party, script: &mut Script<'_>) {
    let mac = match script.below(4) {
        0 => [0; 6],
        1 => [2, 0, 0, 0, 0, script.below(8) as u8],
        // As the host chooses them.
        2 => [2, b'S', b'G', script.below(3) as u8, script.below(2) as u8, script.below(256) as u8],
        _ => std::array::from_fn(|_| script.below(256) as u8),
    };
    let address = match script.below(4) {
        0 => WantedAddress::None,
        1 => WantedAddress::Chosen,
        _ => WantedAddress::This(address(script)),
    };
    let captures = script.below(8) == 0;
    let request =
        Request::JoinLan { lan: lan(script.pick(&LANS)), mac, address, captures, routes: false };
    let descriptors = match script.below(8) {
        0 => Vec::new(),
        1 => vec![descriptor(script)],
        2 => vec![counters(), counters()],
        _ => vec![counters()],
    };
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    party.ask(&request, &descriptors);
}

fn address(script: &mut Script<'_>) -> IpAddr {
    match script.below(8) {
        0..4 => Ipv4Addr::new(10, 1, 0, script.below(17) as u8).into(),
        4 => Ipv4Addr::new(10, 2, 0, script.below(4) as u8).into(),
        5 => Ipv4Addr::from_bits(script.number() as u32).into(),
        6 => Ipv4Addr::new(10, 1, 0, script.below(17) as u8).to_ipv6_mapped().into(),
        _ => IpAddr::V6((u128::from(script.number()) << 64 | u128::from(script.number())).into()),
    }
}

fn check(plane: &mut Plane, observer: &mut Party, honest: &mut Party, table: &mut LentTable) {
    // Or the table could say what the host has read since it reported.
    plane.settle();
    let report = plane.report(observer);
    report.lans.iter().for_each(check_lan);
    let members = &report.lans[0].members;
    let own = members.iter().find(|member| member.guest == "HONEST").expect("it did not leave");
    assert_eq!(own.addresses, [HONEST.to_string()]);
    // It can do what it could, in spite of all others.
    let ours: IpAddr = "fd00::2".parse().expect("an address");
    let answers = [Request::Register { address: ours }, Request::Unregister { address: ours }]
        .map(|request| plane.answer(honest, &request, &[]));
    let is_refused = matches!(
        answers[0],
        Reply::Failed { problem: Problem::AddressTaken | Problem::AddressRefused, .. }
    );
    assert!(
        is_refused || answers.iter().all(|answer| matches!(answer, Reply::Done { .. })),
        "{answers:?}"
    );
    table.refresh(|_, _| {});
    let found: Vec<(usize, String, String, Vec<String>)> = table
        .members()
        .map(|(number, member)| {
            let addresses = member.addresses.iter().map(ToString::to_string).collect();
            (number, member.name.to_string(), member.mac.to_string(), addresses)
        })
        .collect();
    let shown = |member: &MemberReport| {
        let MemberReport { number, guest, mac, addresses, .. } = member;
        (*number, guest.clone(), mac.clone(), addresses.clone())
    };
    assert_eq!(found, members.iter().map(shown).collect::<Vec<_>>());
}

fn check_lan(lan: &LanReport) {
    let mut seen = HashSet::new();
    let is_first = lan.name == "hs0";
    for member in &lan.members {
        let MemberReport { guest, mac, addresses, vlans, captures, .. } = member;
        assert!(
            seen.insert(mac) && addresses.iter().all(|address| seen.insert(address)),
            "{lan:?}"
        );
        assert!(addresses.len() <= MEMBER_ADDRESSES_MAX, "{member:?}");
        assert!(
            !is_first || mac != KEPT_MAC && !addresses.iter().any(|address| address == KEPT),
            "{member:?}"
        );
        let may_join: &[&str] =
            if !is_first { &["EVIL1"] } else { &["HONEST", "EVIL1", "EVIL2", "EVIL3", "EVIL4"] };
        assert!(may_join.contains(&guest.as_str()), "{member:?}");
        assert!(!captures || guest == "EVIL3" && is_first && addresses.is_empty(), "{member:?}");
        let is_fixed = guest == "EVIL2" && !captures;
        // What is local to the link anybody may take who may take nothing else: the kernel behind a port does.
        let is_local = |address: &String| {
            address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local())
        };
        let may_have = |address: &String| address == "10.1.0.6" || is_local(address);
        assert!(!is_fixed || addresses.iter().all(may_have), "{member:?}");
        assert_eq!(*vlans, if is_fixed { vec![7] } else { vec![] });
        assert_ne!(*mac, "00:00:00:00:00:00");
    }
}
