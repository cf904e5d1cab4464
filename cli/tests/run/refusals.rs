//! What a program inside does to its interface: it is told what does not go, and its user is, too.

use std::io::Write;

use super::common::{System, text};
use super::programs::{code, read_until, spawn, system};

const FILE: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
range = ["10.1.0.0/24", "fd00:1::/64"]
"#;

/// Answers each datagram with how long it is.
const SERVER: &str = "import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(('::', 7))
print('ready', flush=True)
while True:
    data, sender = s.recvfrom(65536)
    s.sendto(str(len(data)).encode(), sender)
";

/// Sends long datagrams over one family until one is answered.
const CLIENT: &str = "import socket, sys
for family, to in (socket.AF_INET, '10.1.0.1'), (socket.AF_INET6, 'fd00:1::1'):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(0.2)
    answer = None
    while answer is None:
        try:
            s.sendto(bytes(60000), (to, 7))
            answer = s.recv(100).decode()
        except OSError:
            pass
    print(answer)
";

#[test]
fn packets_longer_than_the_lans_are_sent_shorter() {
    if system("run-long", &["ip", "python3"]).is_none() {
        return;
    }
    let system = System::start_with("run-long-both", FILE);
    let server = ["run", "--name", "web", "--", "timeout", "60", "python3", "-c", SERVER];
    let mut server = spawn(&mut system.command(&server));
    read_until(&mut server, "ready\n");
    let script = "ip link set hs0 mtu 65521 && exec python3 -c \"$0\"";
    let client = ["run", "--name", "client", "--", "timeout", "60", "sh", "-c", script, CLIENT];
    let output = system.run(&client);
    let _ = server.kill();
    let _ = server.wait();
    let error = text(&output.stderr);
    assert_eq!(
        (code(&output), text(&output.stdout)),
        (Some(0), "60000\n60000\n".into()),
        "{error}"
    );
    assert_eq!(error.matches("packets have at most 8192 bytes").count(), 1, "{error}");
}

#[test]
fn frames_from_another_mac_address_are_named_once() {
    let Some(system) = system("run-mac", &["ip", "ping"]) else { return };
    let mut web = spawn(&mut system.script("web", "echo ready; read line"));
    read_until(&mut web, "ready\n");
    let script =
        "ip link set hs0 address 02:00:00:00:00:99; ping -c 3 -i 0.2 -W 1 web; ping -c 1 -W 1 web";
    let output = system.script("me", script).output().unwrap();
    writeln!(web.stdin.as_mut().unwrap()).unwrap();
    let _ = web.wait();
    let error = text(&output.stderr);
    let says = "siga: ME: source address 02:00:00:00:00:99 is not the member's, which is 02:53:47:";
    assert_eq!(error.matches(says).count(), 1, "{error}");
}
