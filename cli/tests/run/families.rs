//! LANs of IPv4 and IPv6 at once.

use std::io::Write;

use super::common::{System, text};
use super::programs::{code, read_until, spawn, system};

const FILE: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
range = ["10.1.0.0/24", "fd00:1::/64"]

[[lan.member]]
guest = "FIXED"
addresses = ["10.1.0.80"]
"#;

#[test]
fn member_of_a_lan_of_both_families_has_an_address_of_each() {
    let Some(single) = system("run-family", &["ping"]) else { return };
    let output = single.script("one", "grep -c hs0 /proc/net/if_inet6").output().unwrap();
    assert_eq!(text(&output.stdout), "0\n", "no IPv6 where the LAN has none");

    let system = System::start_with("run-families", FILE);
    let script = "cat /etc/hosts /proc/net/if_inet6; echo ready; read line";
    let mut web = spawn(&mut system.script("web", script));
    let said = read_until(&mut web, "ready\n");
    // Loopback, the one that follows from the MAC address, and that of the LAN with its prefix of 64 bits.
    assert!(said.contains("10.1.0.1\tweb\n") && said.contains("fd00:1::1\tweb\n"), "{said}");
    let six = said.lines().find(|line| line.starts_with("fd0000010000000000000000000000"));
    assert!(six.is_some_and(|line| line.contains(" 40 ") && line.ends_with("hs0")), "{said}");
    let pings = "until ping -4 -c 1 -W 1 web; do :; done && ping -6 -c 1 -W 5 web";
    let output = system.script("client", pings).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));

    let shown = text(&system.run(&["query", "lan"]).stdout);
    assert!(shown.contains("10.1.0.0/24, fd00:1::/64"), "{shown}");
    assert!(shown.contains("10.1.0.1") && shown.contains("fd00:1::1"), "{shown}");

    // What is fixed is all that a member gets, and a gateway has to be in the network of its family.
    let output = system.script("fixed", "grep -c fd00 /proc/net/if_inet6").output().unwrap();
    assert_eq!(text(&output.stdout), "0\n");
    let far = ["run", "--gateway", "fd00:9::1", "--", "true"];
    let error = text(&system.run(&far).stderr);
    assert!(error.contains("must be in the network of fd00:1::2/64"), "{error}");
    writeln!(web.stdin.as_mut().unwrap()).unwrap();
    assert!(web.wait().unwrap().success());
}
