//! The machine elsewhere, and members that reach it.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Route, Routing, Stack, StackOptions, TcpStream, UdpSocket};

use super::common::{Process, System};
use super::lacking::{has_program, skip};
use super::lasting;

/// The time after which something is taken to hang.
pub const LONG: Duration = Duration::from_secs(60);

/// The address of the gateway on the LAN.
pub const GATEWAY: &str = "10.1.255.254";

/// Networks that are reached: one address of the machine elsewhere by name, not the other, which is none that the kernel sends from.
const TO: [&str; 4] = ["--to", "192.0.2.2/32", "--to", "192.0.2.0/24"];

/// The machine elsewhere. Port 7 gives back what it gets, by TCP and UDP; port 9 takes nothing and keeps what it has; port 19 sends
/// without end; port 11 of UDP answers with the number of connections that are open at 7 and 19, and port 13 without end. A
/// resolver is at 192.0.2.3, and by TCP at port 53 what gives back what it gets. Whatever ends the test ends all of it: standard input
/// does.
const SCRIPT: &str = r#"
ip link set lo up && ip link add elsewhere type veth peer name other && ip link set other up && ip link set elsewhere up &&
ip addr add 192.0.2.2/24 dev elsewhere && ip addr add 192.0.2.3/24 dev elsewhere || exit 9
echo 0 0 > /proc/sys/net/ipv4/ping_group_range
exec 3<&0
python3 -c '
import select, socket, threading
opened = 0
lock = threading.Lock()
def served(serve, stream):
    global opened
    with lock: opened += 1
    with stream:
        try: serve(stream)
        except OSError: pass
    with lock: opened -= 1
def echo(stream):
    while data := stream.recv(65536): stream.sendall(data)
def endless(stream):
    while True: stream.sendall(bytes(65536))
def accept(port, serve):
    listener = socket.create_server(("0.0.0.0", port), backlog=64)
    def run():
        while True: threading.Thread(target=served, args=(serve, listener.accept()[0]), daemon=True).start()
    threading.Thread(target=run, daemon=True).start()
kept = []
silent = socket.create_server(("0.0.0.0", 9), backlog=4096)
threading.Thread(target=lambda: [kept.append(silent.accept()) for _ in iter(int, 1)], daemon=True).start()
def datagrams(port, answer, address="0.0.0.0"):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, port))
    def run():
        while True:
            data, source = udp.recvfrom(65536)
            while True:
                try: udp.sendto(answer(data), source)
                except OSError: break
                if port != 13 or select.select([udp], [], [], 0.02)[0]: break
    threading.Thread(target=run, daemon=True).start()
datagrams(7, lambda data: data)
datagrams(13, lambda data: data)
datagrams(53, lambda data: data[:2] + bytes([data[2] | 128]) + data[3:], "192.0.2.3")
datagrams(11, lambda data: str(opened).encode())
accept(7, echo)
accept(19, endless)
accept(53, echo)
print("there", flush=True)
threading.Event().wait()
' > "$1" & server=$!
read word < "$1"
echo $server > "$1.server"
shift
"$@" & command=$!
(cat <&3 > /dev/null; kill -9 $command $server) 2> /dev/null &
trap 'kill $command' TERM
wait $command
kill $server 2> /dev/null
"#;

/// A command of siga's that runs on the machine elsewhere.
pub struct Elsewhere {
    process: Process,
    results: BufReader<ChildStdout>,
    /// What the command has printed at its beginning.
    pub up: Value,
    server: String,
}

impl Elsewhere {
    /// A gateway. None, and the reason is printed, if this machine can have no machine elsewhere.
    pub fn gateway(test: &str, system: &System, options: &[&str]) -> Option<Elsewhere> {
        let words = ["gateway", "hs0", "--json", "--name", "gateway", "--address", GATEWAY];
        Elsewhere::of(test, system, &[&words[..], &TO, options].concat())
    }

    /// A command that prints an object when it has begun.
    pub fn of(test: &str, system: &System, words: &[&str]) -> Option<Elsewhere> {
        for (program, package) in
            [("unshare", "util-linux"), ("ip", "iproute2"), ("python3", "python3")]
        {
            if !has_program(test, program, package) {
                return None;
            }
        }
        let pipe = system.file("there");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let siga = system.command(words);
        let mut command = Command::new("unshare");
        command.args(["-rn", "sh", "-c", SCRIPT, "sh", &pipe]);
        command.arg(siga.get_program()).args(siga.get_args());
        command.env("SIGA_SOCKET", system.file("siga.sock"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut results = BufReader::new(process.0.stdout.take().unwrap());
        let mut line = String::new();
        results.read_line(&mut line).unwrap();
        if line.is_empty() {
            skip(test, "a network namespace of its own cannot be made");
            return None;
        }
        let server = std::fs::read_to_string(format!("{pipe}.server")).unwrap().trim().to_owned();
        Some(Elsewhere { process, results, up: serde_json::from_str(&line).unwrap(), server })
    }

    /// Ends the command, and returns what it prints then.
    pub fn end(&mut self) -> Value {
        lasting::end(&self.process, &mut self.results)
    }

    pub fn kill_server(&self) {
        kill(&self.server);
    }
}

/// Kills a process.
pub fn kill(process: &str) {
    assert!(Command::new("kill").args(["-9", process]).status().unwrap().success(), "{process}");
}

/// A member whose way to elsewhere is the gateway.
pub fn stack(system: &System, name: &str) -> Stack {
    stack_at(&system.file("siga.sock"), name)
}

/// As [`stack`], at the host that listens at `socket`.
pub fn stack_at(socket: &str, name: &str) -> Stack {
    let guest = Guest::attach(socket, name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lan = Lan::join(guest, "hs0", &options).unwrap();
    let to = "0.0.0.0/0".parse().unwrap();
    let routes = vec![Route { to, via: GATEWAY.parse().unwrap() }];
    let routing = Routing { routes, ..Routing::default() };
    Stack::with_routing(vec![lan], &routing, &StackOptions::default()).unwrap()
}

pub fn connect(stack: &Stack, to: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(stack, &to.parse().unwrap(), LONG)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    Ok(stream)
}

/// Waits until the server has so many connections.
pub fn wait_for_open(stack: &Stack, connections: usize) {
    let socket = UdpSocket::bind(stack, "0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut room = [0; 20];
    loop {
        socket.send_to(b"how many", "192.0.2.2:11").unwrap();
        let (bytes, _) = socket.recv_from(&mut room).unwrap();
        if room[..bytes] == *connections.to_string().as_bytes() {
            return;
        }
    }
}

pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}
