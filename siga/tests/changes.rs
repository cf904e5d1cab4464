//! Changes of a LAN's address table: each is work for every member.

use std::net::IpAddr;

use siga::host::{Embedded, Source, System};
use siga::lan::{JoinLanError, Lan, LanOptions};
use siga::{Guest, Wait};

fn host(system: &str) -> Embedded {
    let source = Source::of("system.toml", system);
    Embedded::start(System::parse(&source).unwrap()).unwrap()
}

fn join(host: &Embedded, guest: &str) -> Result<Lan, JoinLanError> {
    let options = LanOptions { wait: Wait::Block, ..LanOptions::default() };
    Lan::join(Guest::attach_embedded(host, guest).unwrap(), "hs0", &options)
}

const LAN: &str = "\n[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/16\"\n";

fn at(last: u8) -> IpAddr {
    [10, 1, 0, last].into()
}

#[test]
fn address_that_a_member_has_is_registered_again_without_a_change() {
    let host = host(&format!("[[guest]]\nname = \"*\"\n{LAN}"));
    let [mut a, mut b] = ["A", "B"].map(|name| join(&host, name).unwrap());
    a.register(at(7)).unwrap();
    let before = b.changes();
    for _ in 0..5 {
        a.register(at(7)).unwrap();
    }
    assert_eq!(b.changes(), before);
    a.unregister(at(7)).unwrap();
    assert_eq!(b.changes(), before + 1);
}
