//! Profiles of our own, in the shapes of published ones. Seen in public are: what IPWIZARD of z/VM writes (DEVICE OSD, LINK QDIOETHERNET with MTU and IP, HOME with
//! a mask, DEFAULTNET of four words, columns up to 80); the sample profile of TCP/IP for MVS with its pools, blocks and ports, CTC, and the old form of
//! GATEWAY with HOST and a lower-case `defaultnet`; profiles of z/OS with MPCIPA, several HOME statements, BEGINRoutes with masks and with bits, IPv6, REPL; INTERFACE over
//! lines with system symbols; networks with fewer than four numbers and with zeros in front; BSDROUTINGPARMS; semicolons right behind a word.

use super::*;
use crate::system::{System, machine};

fn name(name: &str) -> Name {
    name.parse().unwrap()
}

fn import_text(text: &str) -> Result<Import, Vec<Finding>> {
    import(&Source::of("P", text), name("TCPIP"))
}

/// The findings, one in each line.
fn said(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.error.to_string()).collect()
}

/// An import that must make a system file, which must be right.
fn made(text: &str) -> Import {
    let import = import_text(text).unwrap_or_else(|findings| panic!("{:#?}", said(&findings)));
    let system = System::parse(&Source::of("s.toml", &import.text));
    let system = system.unwrap_or_else(|error| panic!("{error}\n{}", import.text));
    assert!(system.warnings.is_empty(), "{:?}", system.warnings);
    assert_eq!((system.lans.len(), system.lines.len()), (import.lans, import.lines));
    import
}

/// The system file without its comments and empty lines.
fn tables(text: &str) -> String {
    let text = made(text).text;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end());
    let mut tables = String::new();
    for line in lines.filter(|line| !line.is_empty()) {
        tables.push_str(line);
        tables.push('\n');
    }
    tables
}

const VM: &str = r#"; A machine with one of each.
DATABUFFERPOOLSIZE 160 32760
DATABUFFERLIMITS   10 10
DEVICE HS0    HIPERS 7000 PORTNAME HSPORT CPU 1
LINK   HSL0   QDIOIP HS0 MTU 16384
DEVICE DEV@08 OSD    0800 NONROUTER CPU 0
LINK   ETH0   QDIOETHERNET DEV@08 MTU 1492 IP
DEVICE IUCVD  IUCV   0 0 LINUX1 A CPU 2
LINK   IUCVL  IUCV   0 IUCVD
DEVICE CTCD   CTC    x'0E20'
LINK   CTCL   CTC    1 CTCD
HOME
  10.1.0.5     255.255.255.0 HSL0
  192.0.2.7/26               ETH0  fd00:2::7/64 ETH0
  10.9.0.1                   IUCVL
  10.9.1.1/30                CTCL
GATEWAY
; Network      Mask            First hop   Link  MTU
  10.9.0.2     HOST            =           IUCVL 9216
  10.2.0.0     255.255.0.0     10.1.0.1    HSL0  16384
  DEFAULTNET                   192.0.2.1   ETH0  1492
  2001:db8::/32                fd00:2::1   ETH0  1492
ASSORTEDPARMS NOFWD ENDASSORTEDPARMS
START HS0
START DEV@08 START IUCVD
START CTCD
"#;

#[test]
fn profile_of_vm_becomes_a_machine_with_lans_and_lines() {
    let import = made(VM);
    let expected = r#"# Made by siga import from P: docs/import.md describes what becomes of a profile.
#
# What this file says otherwise than the profile:
#   line 7: LINK ETH0 is of a real adapter, which is not available yet: the LAN osa0 stands in for it: guests reach each other there, and no other network
#   line 9: the processor of the driver of LINK IUCVL cannot be said: the system file has it as a comment
#   line 11: the profile does not name the guest at LINK CTCL: the system file calls it PEER
#
# What this file cannot say:
#   line 4: DEVICE PORTNAME HSPORT is left out: a LAN has no port names

# All guests: clients of the machine, and those that the profile names.
[[guest]]
name = "*"

# DEVICE HS0 HIPERS, line 4; LINK HSL0, line 5.
[[lan]]
name = "hs0"
frame = "24 KiB"
range = "10.1.0.0/24"
routers = ["ROUTER"]

# A router of the profile, by a name of our own.
[[lan.member]]
guest = "ROUTER"
addresses = ["10.1.0.1"]

# DEVICE DEV@08 OSD, line 6; LINK ETH0, line 7.
[[lan]]
name = "osa0"
frame = "16 KiB"
range = ["192.0.2.0/26", "fd00:2::/64"]
routers = ["ROUTER2", "ROUTER3"]

# A router of the profile, by a name of our own.
[[lan.member]]
guest = "ROUTER2"
addresses = ["192.0.2.1"]

# A router of the profile, by a name of our own.
[[lan.member]]
guest = "ROUTER3"
addresses = ["fd00:2::1"]

# DEVICE IUCVD IUCV, line 8; LINK IUCVL, line 9.
[[line]]
name = "iucv0"
kind = "iucv"
mtu = 9216

# The machine.
[[line.end]]
guest = "TCPIP"
address = "10.9.0.1"

# The guest of DEVICE IUCV.
[[line.end]]
guest = "LINUX1"
address = "10.9.0.2"

# DEVICE CTCD CTC, line 10; LINK CTCL, line 11.
[[line]]
name = "ctc0"
kind = "ctc"
mtu = 9216

# The machine.
[[line.end]]
guest = "TCPIP"
address = "10.9.1.1"

# A name of our own: the profile has none.
[[line.end]]
guest = "PEER"
address = "10.9.1.2"

[[tcpip]]
name = "TCPIP"
clients = ["*"]
connection_buffers = "320 KiB"      # DATABUFFERLIMITS, line 3: 10 of 32760 bytes, rounded up
buffers_max = "5119 KiB"      # DATABUFFERPOOLSIZE, line 2: 160 of 32760 bytes, for all clients together, rounded up

# DEVICE HS0 HIPERS, line 4; LINK HSL0, line 5.
[[tcpip.interface]]
lan = "hs0"
addresses = ["10.1.0.5"]
mtu = 16384
cpu = 1

# DEVICE DEV@08 OSD, line 6; LINK ETH0, line 7.
[[tcpip.interface]]
lan = "osa0"
addresses = ["192.0.2.7", "fd00:2::7"]
mtu = 1492

# DEVICE IUCVD IUCV, line 8; LINK IUCVL, line 9.
[[tcpip.interface]]
line = "iucv0"
# cpu = 2

# DEVICE CTCD CTC, line 10; LINK CTCL, line 11.
[[tcpip.interface]]
line = "ctc0"

# line 20; ROUTER stands for this router.
[[tcpip.route]]
to = "10.2.0.0/16"
via = "10.1.0.1"

# line 21; ROUTER2 stands for this router.
[[tcpip.route]]
to = "0.0.0.0/0"
via = "192.0.2.1"

# line 22; ROUTER3 stands for this router.
[[tcpip.route]]
to = "2001:db8::/32"
via = "fd00:2::1"
"#;
    assert_eq!(import.text, expected);
    assert_eq!((import.lans, import.lines), (2, 2));
}

#[test]
fn case_lines_and_short_keywords_make_no_difference() {
    let folded = VM.to_lowercase().replace("device", "dev");
    assert_eq!(tables(&folded), tables(VM));
    // Free-form: every word in a line of its own, and comments in between.
    let mut text = String::new();
    for line in VM.lines().filter(|line| !line.starts_with(';')) {
        let words = line.split(';').next().unwrap().split_whitespace();
        words.for_each(|word| text.push_str(&format!("{word};x\r\n")));
    }
    assert_eq!(tables(&text), tables(VM));
}

#[test]
fn old_form_of_gateway_names_the_class_of_a_network() {
    let text = "DEVICE C CTC E20 LINK L CTC 1 C
        DEVICE O OSD 800 LINK E QDIOETHERNET O
        HOME 192.168.59.222 L 172.019.154.7 E
        GATEWAY
         192.168.59.221 =              L 1492 HOST
         172.19         =              E 4096 0.0.255.0 0.0.154.0
         193.12.2       172.19.154.10  E 2000 0
         9              172.19.154.10  E DEFAULTSIZE 0
         10             172.19.154.10  E 0 0.255.0.0 0.7.0.0
         130.1.5.9      172.19.154.11  E 1500 HOST
         defaultnet     192.168.59.221 L 1492 0
        START C START O";
    let tables = tables(text);
    for part in [
        "mtu = 1492\n[[line.end]]\nguest = \"TCPIP\"\naddress = \"192.168.59.222\"",
        "address = \"192.168.59.221\"",
        "name = \"osa0\"\nframe = \"16 KiB\"\nrange = \"172.19.154.0/24\"",
        "mtu = 4096\n",
        "to = \"193.12.2.0/24\"\nvia = \"172.19.154.10\"",
        "to = \"9.0.0.0/8\"\nvia = \"172.19.154.10\"",
        "to = \"10.7.0.0/16\"\nvia = \"172.19.154.10\"",
        "to = \"130.1.5.9/32\"\nvia = \"172.19.154.11\"",
    ] {
        assert!(tables.contains(part), "{part}\n{tables}");
    }
    assert_eq!(tables.matches("[[tcpip.route]]").count(), 5);
    assert!(tables.ends_with("to = \"0.0.0.0/0\"\nvia = \"192.168.59.221\"\n"), "{tables}");
}

#[test]
fn profile_of_zos_becomes_one_too() {
    let text = "TCPCONFIG TCPSENDBFRSIZE 32K TCPRCVBUFRSIZE 64K;CHG
        DEVice IUTIQDFE MPCIPA
        LINK HSLINK IPAQIDIO IUTIQDFE
        HOME 10.1.0.5 HSLINK
        INTERFace OSA1
          DEFINE IPAQENET IPADDR 172.16.1.1/24 PORTNAME QDIO1 MTU 8992
          INBPERF DYNAMIC WORKLOADQ PRIROUTER
        BSDROUTINGPARMS TRUE
          HSLINK 57344 0 255.255.240.0 0
        ENDBSDROUTINGPARMS
        BEGINRoutes
          ROUTE 10.1.0.0/20 = HSLINK MTU 57344
          ROUTE 10.3.0.0 255.255.0.0 172.16.1.9 OSA1 MTU 8992 NOREPL
          ROUTE DEFAULT 172.16.1.9 OSA1 MTU DEFAULTSIZE REPL;CHG
        ENDRoutes
        START IUTIQDFE
        START OSA1";
    let import = made(text);
    for part in [
        "name = \"hs0\"\nframe = \"64 KiB\"\nrange = \"10.1.0.0/20\"",
        "name = \"osa0\"\nframe = \"24 KiB\"\nrange = \"172.16.1.0/24\"",
        "connection_buffers = \"64 KiB\"      # TCPCONFIG, line 1: 65536 bytes\n",
        "mtu = 57344\n",
        "mtu = 8992\n",
        "to = \"10.3.0.0/16\"\nvia = \"172.16.1.9\"",
        "to = \"0.0.0.0/0\"\nvia = \"172.16.1.9\"",
    ] {
        assert!(import.text.contains(part), "{part}\n{}", import.text);
    }
    assert_eq!(
        said(&import.findings),
        [
            "P:5: INTERFACE OSA1 is of a real adapter, which is not available yet: the LAN osa0 stands in for it: guests reach each other there, and no other network",
            "P:6: INTERFACE PORTNAME QDIO1 is left out: a LAN has no port names",
            "P:7: INTERFACE INBPERF DYNAMIC is left out: moderation of an adapter's input cannot be said yet",
            "P:7: INTERFACE WORKLOADQ is left out: inbound workload queuing cannot be said yet",
            "P:7: INTERFACE PRIROUTER is left out: a frame goes to the member that has its address; routers of [[lan]] may pass packets on",
        ]
    );
}

/// A profile from which a LAN can be made, for lines before and after it.
const LAN: &str = "DEVICE H HIPERS 7000 LINK L QDIOIP H HOME 10.1.0.5/24 L START H";

#[test]
fn mistakes_are_named_with_their_line_and_the_cure() {
    let mut wrong = String::new();
    for (text, error) in [
        ("DEVCE X OSD 800", "P:1: DEVCE is no statement: did you mean DEVICE?"),
        (
            "XYZZY",
            "P:1: XYZZY is no statement: must be one that docs/import.md lists, or a comment after ;",
        ),
        ("\n* DEVICE X OSD 800", "P:2: this begins no statement: a comment must begin with ;"),
        (
            "INCLUDE 'A.B",
            "P:1: this quote has no second one: a text in quotes must end in its line",
        ),
        (
            "DEVICE",
            "P:1: DEVICE has no name: must be DEVICE name type ..., like DEVICE HS0 HIPERS 7000",
        ),
        (
            "DEVICE X",
            "P:1: DEVICE has no type: must be DEVICE name type ..., like DEVICE HS0 HIPERS 7000",
        ),
        ("DEVICE X HIPPERS 7", "P:1: HIPPERS is no type of device: did you mean HIPERS?"),
        ("DEVICE X OSD", "P:1: DEVICE has no address: must be DEVICE name OSD address, like 7000"),
        (
            "DEVICE X OSD 70G0",
            "P:1: 70G0 is no address of a device: must be 1 to 4 hexadecimal digits, like 0E20",
        ),
        (
            "DEVICE X OSD 10000",
            "P:1: 10000 is no address of a device: must be 1 to 4 hexadecimal digits, like 0E20",
        ),
        (
            "DEVICE X OSD 800 CPU 64",
            "P:1: 64 is out of its limits, or no number: must be 0 to 63, in decimal digits",
        ),
        (
            "DEVICE X OSD 800 CPU",
            "P:1: DEVICE has no word after CPU: must be CPU and a word after it",
        ),
        (
            "DEVICE X OSD 800 PRIROTER",
            "P:1: PRIROTER is no option of DEVICE: did you mean PRIROUTER?",
        ),
        (
            "DEVICE X OSD 800\nLNIK L QDIOETHERNET X",
            "P:2: LNIK is no statement: did you mean LINK?",
        ),
        ("DEVICE H OSD 800", "P:2: H is the name of a DEVICE above: must have a name of its own"),
        (
            "DEVICE ABCDEFGHIJKLMNOPQ OSD 800",
            "P:1: ABCDEFGHIJKLMNOPQ is no name: must be at most 16 letters, digits and signs",
        ),
        (
            "DEVICE X IUCV 0 0",
            "P:1: DEVICE has no guest at its other end: must be DEVICE name IUCV 0 0 guest A",
        ),
        ("LINK M QDIO H", "P:1: QDIO is no type of link: did you mean QDIOTR or QDIOIP?"),
        (
            "LINK M QDIOIP",
            "P:1: LINK has no device: must be LINK name type device, like LINK HSL0 QDIOIP HS0",
        ),
        ("LINK M QDIOIP H2", "P:1: no DEVICE has the name H2: did you mean H?"),
        (
            "LINK M CTC H 1",
            "P:1: H is no number of a link: must be LINK name CTC number device, like 0 CTCA1",
        ),
        (
            "LINK M QDIOETHERNET H HOME 10.3.0.1 M",
            "P:1: QDIOETHERNET is no link of a device HIPERS: must be of a device OSD",
        ),
        (
            "DEVICE I HIPERS 1 START I LINK M QDIOIP I MTU 99999 HOME 10.3.0.1/24 M",
            "P:1: 99999 is no MTU: must be 576 to 65535, or DEFAULTSIZE",
        ),
        (
            "DEVICE I HIPERS 1 START I LINK M QDIOIP I IPADDR 10.3.0.1 HOME 10.3.0.1/24 M",
            "P:1: IPADDR is no option of LINK: must be one that docs/import.md lists, or a comment after ;",
        ),
        (
            "DEVICE I HIPERS 1 LINK M QDIOIP I",
            "P:1: LINK M has no address: must have one, like HOME 10.1.0.1/24 M",
        ),
        ("HOME", ""),
        ("PORT 21 TCP FTPSERVE\nSTRAT H", "P:2: STRAT is no statement: did you mean START?"),
        (
            "DEVICE X OSD 800\nQDIO L",
            "P:2: QDIO is no statement, nor option of DEVICE: must be one that docs/import.md lists, or a comment after ;",
        ),
        ("HOME 10.1.0 L", "P:1: 10.1.0 is no IP address: must be one like 10.1.0.1 or FD00::1"),
        (
            "HOME &ADDRESS L",
            "P:1: &ADDRESS is a system symbol: must be replaced by what it stands for",
        ),
        (
            "HOME 10.1.0.256 L",
            "P:1: 10.1.0.256 is no IP address: must be one like 10.1.0.1 or FD00::1",
        ),
        ("HOME 240.0.0.1 L", "P:1: 240.0.0.1 is no address of a host: must begin with 1 to 223"),
        ("HOME 10.1.0.1/+9 L", "P:1: 10.1.0.1/+9 has no number of bits after /: must be 1 to 32"),
        ("HOME 10.1.0.1/33 L", "P:1: 10.1.0.1/33 has no number of bits after /: must be 1 to 32"),
        (
            "HOME 10.1.0.1 255.0.255.0 L",
            "P:1: 255.0.255.0 is no mask: must be ones and then zeros, like 255.255.255.0",
        ),
        (
            "HOME 10.1.0.1/24 255.255.255.0 L",
            "P:1: 255.255.255.0 is a second mask: must be HOME address link, like 10.1.0.1/24 HSL0 or 10.1.0.1 255.255.255.0 HSL0",
        ),
        (
            "HOME 10.1.0.1",
            "P:1: HOME has no link: must be HOME address link, like 10.1.0.1/24 HSL0 or 10.1.0.1 255.255.255.0 HSL0",
        ),
        ("HOME 10.1.0.1 M", "P:1: no LINK has the name M: must be described by a LINK statement"),
        ("HOME 224.0.0.1 L", "P:1: 224.0.0.1 is no address of a host: must be one, like 10.1.0.1"),
        (
            "HOME 10.1.0.255/24 L",
            "P:1: 10.1.0.255 is the first or the last address of 10.1.0.0/24: must be another one",
        ),
        (
            "HOME 10.1.0.9/24 L\n10.1.0.9/24 L",
            "P:2: 10.1.0.9 is a home address above: must be there once",
        ),
        (
            "GATEWAY 10.2.0.0 10.1.0.1 L 1500",
            "P:1: 10.2.0.0 has no mask: must have one, like 10.2.0.0/16, 10.2.0.0 255.255.0.0, or HOST",
        ),
        (
            "GATEWAY 10.2.0.1/16 10.1.0.1 L 1500",
            "P:1: 10.2.0.1/16 has bits that its mask has not: did you mean 10.2.0.0/16?",
        ),
        (
            "GATEWAY 10.2.0.1 10.1.0.1 L 1500 0",
            "P:1: 10.2.0.1 has bits that its mask has not: did you mean 10.0.0.0/8?",
        ),
        (
            "GATEWAY 10 10.1.0.1 L 1500 0.0.255.0 0.0.2.0",
            "P:1: 0.0.255.0 is no mask of a subnet: must be ones behind those of the network's class, like 0.0.255.0",
        ),
        (
            "GATEWAY 240 10.1.0.1 L 1500 0",
            "P:1: 240 is no network of a host: must begin with 1 to 223",
        ),
        (
            "GATEWAY 10.2.0.0/16 10.1.0.1 L",
            "P:1: GATEWAY has no MTU: must be GATEWAY network mask hop link MTU, like 10.2.0.0 255.255.0.0 10.1.0.1 HSL0 8192",
        ),
        (
            "GATEWAY 10.2.0.0/16 10.1.0.1 L big",
            "P:1: BIG is no MTU: must be 576 to 65535, or DEFAULTSIZE",
        ),
        (
            "GATEWAY 10.2.0.0/16 10.3.0.1 L 1500",
            "P:1: the first hop 10.3.0.1 is no address at L: must be a host's in 10.1.0.0/24",
        ),
        (
            "GATEWAY 10.2.0.0/16 10.1.0.5 L 1500",
            "P:1: the first hop 10.1.0.5 is the machine's own address: must be that of a router, or =",
        ),
        (
            "GATEWAY 10.2.0.0/16 fd00::1 L 1500",
            "P:1: a network of the other family: must be of the family of its first hop",
        ),
        (
            "GATEWAY DEFAULTNET = L 1500",
            "P:1: a default route to the link itself: must have the address of a router as its first hop",
        ),
        (
            "GATEWAY DEFAULTNET 10.1.0.1 M 1500",
            "P:1: no LINK has the name M: must be described by a LINK statement",
        ),
        (
            "BEGINROUTES RUOTE DEFAULT 10.1.0.1 L ENDROUTES",
            "P:1: RUOTE is no entry of BEGINROUTES: did you mean ROUTE?",
        ),
        (
            "BEGINROUTES ROUTE DEFAULT 10.1.0.1 L MTU 1500 RELP ENDROUTES",
            "P:1: RELP is no option of ROUTE: must be one of MTU, REPLACEABLE, NOREPLACEABLE, MAXIMUMRETRANSMITTIME, MINIMUMRETRANSMITTIME, ROUNDTRIPGAIN, VARIANCEGAIN, VARIANCEMULTIPLIER, DELAYACKS, NODELAYACKS",
        ),
        (
            "BEGINROUTES ROUTE DEFAULT 10.1.0.1 L",
            "P:1: BEGINROUTES has no end: must end with ENDROUTES",
        ),
        ("AUTOLOG FTPSERVE", "P:1: AUTOLOG has no end: must end with ENDAUTOLOG"),
        ("INTERFACE I DEFNE IPAQENET", "P:1: DEFNE is no verb of INTERFACE: did you mean DEFINE?"),
        (
            "INTERFACE I DEFINE IPAQNET",
            "P:1: IPAQNET is no type of interface: did you mean IPAQENET?",
        ),
        ("START G", "P:1: no DEVICE has the name G: must be described by a DEVICE statement"),
        (
            "START H G",
            "P:1: G is no statement: must be one that docs/import.md lists, or a comment after ;",
        ),
        (
            "DATABUFFERPOOLSIZE",
            "P:1: DATABUFFERPOOLSIZE has no number: must be DATABUFFERPOOLSIZE number size, like 160 32760",
        ),
        (
            "DATABUFFERPOOLSIZE 160 262145",
            "P:1: 262145 is out of its limits, or no number: must be 256 to 262144, in decimal digits",
        ),
        (
            "DATABUFFERPOOLSIZE 0",
            "P:1: 0 is out of its limits, or no number: must be 1 to 1048576, in decimal digits",
        ),
        (
            "DATABUFFERLIMITS +5",
            "P:1: +5 is out of its limits, or no number: must be 1 to 1048576, in decimal digits",
        ),
        (
            "DATABUFFERLIMITS 5 5 5",
            "P:1: 5 is one operand too many: must be DATABUFFERLIMITS receive send, like 10 10",
        ),
        (
            "FIXEDPAGESTORAGEPOOL many",
            "P:1: MANY is out of its limits, or no number: must be 1 to 16777216, in decimal digits",
        ),
        (
            "TCPCONFIG TCPRCVBUFRSIZE 9G",
            "P:1: 9G is out of its limits, or no size: must be 256 to 2097152, or a number with K or M",
        ),
        (
            "TCPCONFIG TCPRCVBUFRSIZE +8K",
            "P:1: +8K is out of its limits, or no size: must be 256 to 2097152, or a number with K or M",
        ),
        (
            "ASSORTEDPARMS NOFWDD ENDASSORTEDPARMS",
            "P:1: NOFWDD is no option of ASSORTEDPARMS: did you mean NOFWD?",
        ),
        (
            "BSDROUTINGPARMS TRUE L 1500 0 255.0.255.0 0 ENDBSDROUTINGPARMS",
            "P:1: 255.0.255.0 is no mask: must be ones and then zeros, like 255.255.255.0",
        ),
    ] {
        // In front of all, but where something must be described before.
        let text = match text {
            "DEVICE H OSD 800" => format!("{LAN}\n{text}"),
            _ => format!("{text}\n{LAN}"),
        };
        let import = made(&text);
        let mistakes: Vec<String> = import
            .findings
            .iter()
            .filter(|finding| finding.kind == FindingKind::Mistake)
            .map(|finding| finding.error.to_string())
            .collect();
        let expected: &[&str] = if error.is_empty() { &[] } else { &[error] };
        if mistakes != expected {
            wrong.push_str(&format!("{text}:\n  {mistakes:#?}\n  {expected:#?}\n"));
        }
        assert!(import.text.contains("name = \"hs0\"\n"), "the rest is made: {text}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn lines_say_what_is_wrong_with_them() {
    for (text, error) in [
        (
            "DEVICE C CTC 1 LINK M CTC 0 C HOME 10.9.0.1 M",
            "P:1: the address of the other end of LINK M is nowhere: must be in a route, like 10.1.0.2 HOST = M 9216",
        ),
        (
            "DEVICE I IUCV 0 0 TCPIP A LINK M IUCV 0 I HOME 10.9.0.1/30 M",
            "P:1: TCPIP is the machine itself: must be another guest; --name gives the machine another name",
        ),
        (
            "DEVICE I IUCV 0 0 TCPIP1 A LINK M IUCV 0 I HOME 10.9.0.1/30 M",
            "P:1: TCPIP1 is the machine itself: must be another guest; --name gives the machine another name",
        ),
        (
            "DEVICE I IUCV 0 0 LINUX.1 A LINK M IUCV 0 I HOME 10.9.0.1/30 M",
            "P:1: LINUX.1 is no name of a guest: must be 1 to 8 of A-Z 0-9 $ # @ _ -",
        ),
        (
            "DEVICE I IUCV 0 0 LINUX1 A START I LINK M IUCV 0 I HOME 10.9.0.1/30 M\nGATEWAY DEFAULTNET 10.9.0.3 M 0",
            "",
        ),
        (
            "DEVICE I IUCV 0 0 LINUX1 A START I LINK M IUCV 0 I HOME 10.9.0.1/30 M\nGATEWAY 10.9.0.2 HOST = M 0\nDEFAULTNET 10.9.0.3 M 0",
            "P:3: 10.9.0.3 is not at the other end of LINK M: must be 10.9.0.2",
        ),
        (
            "DEVICE I IUCV 0 0 LINUX1 A START I LINK M IUCV 0 I LINK N IUCV 0 I HOME 10.9.0.1/30 M 10.9.1.1/30 N",
            "P:1: DEVICE I has a LINK above: must have one",
        ),
    ] {
        let import = made(&format!("{text}\n{LAN}"));
        let is_mistake = |finding: &&Finding| finding.kind == FindingKind::Mistake;
        let mistakes: Vec<Finding> = import.findings.iter().filter(is_mistake).cloned().collect();
        let expected: &[&str] = if error.is_empty() { &[] } else { &[error] };
        assert_eq!(said(&mistakes), expected, "{text}");
    }
}

#[test]
fn what_cannot_be_said_is_listed_with_the_reason() {
    let text = "ACBPOOLSIZE 1000
PORT 20 TCP FTPSERVE NOAUTOLOG
     23 TCP INTCLIEN
AUTOLOG FTPSERVE PASSWORD HOME ENDAUTOLOG
DELETE DEVICE X
TRACE TCP HOME
FIXEDPAGESTORAGEPOOL 400 100
HOME 10.1.0.6/24 L 10.1.0.7/24 L 10.1.0.8/24 L 10.1.0.9/24 L
     10.2.0.9/24 L 127.0.0.1 LOOPBACK
GATEWAY 10.7.0.0/16 10.1.0.1 L 1500
        10.7.0.0/16 10.1.0.2 L 1500
        10.8.0.0/16 =        L 1500
        10.1.0.128/25 =      L 1500
DEVICE V VIRTUAL 0 LINK VL VIRTUAL 0 V
GATEWAY 10.9.0.0/16 10.1.0.1 VL 1500
DEVICE Z OSD 800";
    let import = made(&format!("{LAN}\n{text}"));
    assert_eq!(
        said(&import.findings),
        [
            "P:2: ACBPOOLSIZE is left out: the stack allocates these as they are needed",
            "P:3: PORT is left out: a port belongs to the client that listens at it first",
            "P:5: AUTOLOG is left out: a host starts no programs: a supervisor like systemd does",
            "P:6: DELETE is left out: what is not wanted is not described",
            "P:7: TRACE is left out: siga capture shows the frames of a LAN",
            "P:8: FIXEDPAGESTORAGEPOOL 400 is left out: pages of a path are not locked, and come as they are needed; buffers_max of [[tcpip]] bounds what clients keep",
            "P:9: the address 10.1.0.9 is left out: a member of a LAN has at most 4",
            "P:10: the address 10.2.0.9 is left out: a LAN has one network of each family",
            "P:10: the address of LOOPBACK is left out: the stack has a loopback interface",
            "P:12: a second route to 10.7.0.0/16 is left out: there is one route to each network: this goes to 10.1.0.1",
            "P:13: the route to 10.8.0.0/16 without a router is left out: a LAN has one network of each family",
            "P:15: LINK VL is left out: there are no virtual addresses, which move between machines",
            "P:16: the route to 10.9.0.0/16 is left out: LINK VL is left out too",
            "P:17: DEVICE Z is left out: no LINK is of this device",
        ]
    );
    let all = import.findings.iter().all(|finding| finding.kind == FindingKind::LeftOut);
    assert!(all, "{:?}", import.findings);
}

#[test]
fn what_is_said_otherwise_is_listed() {
    let text = "DATABUFFERPOOLSIZE 4 256 DATABUFFERLIMITS 5 10
DEVICE A HIPERS 7000 LINK AL QDIOIP A MTU 65535
DEVICE B HIPERS 7010 LINK BL QDIOIP B
HOME 9.1.0.5 AL
     9.1.0.6 BL
START A";
    let import = made(text);
    assert_eq!(
        said(&import.findings),
        [
            "P:1: DATABUFFERLIMITS differ for receiving and sending: the system file has the greater for both: 10",
            "P:2: LINK AL has an MTU of 65535: the system file has 57344, the greatest there is here",
            "P:3: DEVICE B has no START: the interface is used all the same",
            "P:3: LINK BL is in the network of a link above: both are one interface of the LAN hs0, which has all addresses",
            "P:4: 9.1.0.5 has no mask, and no route has one: its network is that of its class, 9.0.0.0/8",
            "P:5: 9.1.0.6 has no mask, and no route has one: its network is that of its class, 9.0.0.0/8",
        ]
    );
    assert_eq!(import.lans, 1);
    for part in [
        "frame = \"64 KiB\"\nrange = \"9.0.0.0/8\"",
        "addresses = [\"9.1.0.5\", \"9.1.0.6\"]\nmtu = 57344",
        "connection_buffers = \"4 KiB\"      # DATABUFFERLIMITS, line 1: 10 of 256 bytes, as little as there may be\n",
        "buffers_max = \"16 KiB\"      # DATABUFFERPOOLSIZE, line 1: 4 of 256 bytes, for all clients together, as little as there may be\n",
    ] {
        assert!(import.text.contains(part), "{part}\n{}", import.text);
    }
    let forwards =
        format!("{LAN} DEVICE B HIPERS 7010 LINK BL QDIOIP B HOME 10.2.0.1/24 BL START B");
    let expected = "P:1: TCP/IP for VM passes packets on between two interfaces: the machine passes nothing on between its interfaces: siga route does";
    assert_eq!(said(&made(&forwards).findings), [expected]);
    let not = format!("ASSORTEDPARMS NOFWD ENDASSORTEDPARMS {forwards}");
    assert_eq!(said(&made(&not).findings), [""; 0]);
}

#[test]
fn greater_of_two_sizes_of_a_connection_is_taken() {
    let limits = "DATABUFFERPOOLSIZE 160 8192 DATABUFFERLIMITS 10 10";
    for (config, size, found) in [
        (
            "64K",
            "\"80 KiB\"      # DATABUFFERLIMITS, line 1: 10 of 8192 bytes\n",
            Some("TCPCONFIG has another size of a connection's buffers than DATABUFFERLIMITS"),
        ),
        (
            "128K",
            "\"128 KiB\"      # TCPCONFIG, line 2: 131072 bytes\n",
            Some("DATABUFFERLIMITS has another size of a connection's buffers than TCPCONFIG"),
        ),
        ("80K", "\"80 KiB\"      # DATABUFFERLIMITS, line 1: 10 of 8192 bytes\n", None),
    ] {
        let import = made(&format!("{limits}\nTCPCONFIG TCPRCVBUFRSIZE {config}\n{LAN}"));
        assert!(import.text.contains(&format!("connection_buffers = {size}")), "{}", import.text);
        let line = if config == "64K" { 2 } else { 1 };
        let found = found.map(|what| {
            let kib = config.trim_end_matches('K').parse::<u32>().unwrap().max(80);
            format!("P:{line}: {what}: the system file has the greater: {kib} KiB")
        });
        assert_eq!(said(&import.findings), Vec::from_iter(found));
    }
}

#[test]
fn link_of_a_device_that_there_is_none_of_here_is_left_out_whatever_its_own_type() {
    let text = "DEVICE D PVMIUCV PEERNODE PEERUSER A START D LINK M IUCV 0 D HOME 10.9.0.1/30 M";
    let import = made(&format!("{text}\n{LAN}"));
    assert_eq!(import.lines, 0);
    let expected = "P:1: LINK M is left out: there are no devices of this type";
    assert_eq!(said(&import.findings), [expected]);
}

#[test]
fn names_of_our_own_are_nobodys() {
    let text = "DEVICE H HIPERS 7000 LINK L QDIOIP H HOME 10.1.0.5/24 L START H
        DEVICE I IUCV 0 0 ROUTER A LINK M IUCV 0 I HOME 10.9.0.1/30 M START I
        GATEWAY 10.2.0.0/16 10.1.0.1 L 0 10.3.0.0/16 10.1.0.2 L 0";
    let routers = |name: &str| {
        let import = import(&Source::of("P", text), name.parse().unwrap()).unwrap();
        assert!(System::parse(&Source::of("s.toml", &import.text)).is_ok(), "{}", import.text);
        import.text.lines().find(|line| line.starts_with("routers")).unwrap().to_owned()
    };
    assert_eq!(routers("TCPIP"), "routers = [\"ROUTER2\", \"ROUTER3\"]");
    assert_eq!(routers("ROUTER8"), "routers = [\"OTHER\", \"OTHER2\"]");
}

#[test]
fn routes_that_are_left_out_make_no_routers() {
    let hops: String =
        (0..100).map(|at| format!("10.2.{at}.0/24 10.1.0.{} L 0\n", 100 + at)).collect();
    let import = made(&format!("{LAN} GATEWAY\n{hops}"));
    assert_eq!(import.text.matches("[[tcpip.route]]").count(), machine::ROUTES_MAX);
    assert_eq!(import.text.matches("[[lan.member]]").count(), machine::ROUTES_MAX);
    let error = "P:66: the route to 10.2.64.0/24 is left out: a machine has at most 64 routes";
    assert_eq!(said(&import.findings)[0], error);
    let second = "GATEWAY 10.7.0.0/16 10.1.0.1 L 0 10.7.0.0/16 10.1.0.2 L 0";
    let import = made(&format!("{LAN} {second}"));
    assert!(import.text.contains("routers = [\"ROUTER\"]\n"), "{}", import.text);
}

#[test]
fn names_of_our_own_may_run_out() {
    let users = (1..100).map(|at| {
        let number = if at == 1 { String::new() } else { at.to_string() };
        format!("DEVICE D{at} IUCV 0 0 ROUTER{number} A\n")
    });
    let import =
        made(&format!("{}{LAN} GATEWAY 10.2.0.0/16 10.1.0.1 L 0", users.collect::<String>()));
    assert_eq!(import.text.matches("[[tcpip.route]]").count(), 0);
    let error = "P:100: no name is left for a guest: ROUTER100 is too long: must have fewer DEVICE IUCV to guests ROUTER, ROUTER2, ..";
    assert_eq!(said(&import.findings).last().unwrap(), error);
}

#[test]
fn profile_without_an_interface_makes_nothing() {
    for (text, said_of_it) in [
        ("", &[][..]),
        ("; nothing\n", &[]),
        (
            "DEVICE X OSD 800 LINK L QDIOETHERNET X",
            &["P:1: LINK L has no address: must have one, like HOME 10.1.0.1/24 L"],
        ),
        (
            "DEVICE X X25NPSI TCPIPX25 LINK L SAMEHOST 1 X HOME 199.005.058.23 L",
            &["P:1: LINK L is left out: there are no devices of this type"],
        ),
    ] {
        assert_eq!(said(&import_text(text).unwrap_err()), said_of_it, "{text}");
    }
}

#[test]
fn machine_may_be_at_a_line_alone() {
    let text = "DEVICE I IUCV 0 0 LINUX1 A CPU 1 LINK L IUCV 0 I HOME 10.9.0.1/30 L START I
        GATEWAY DEFAULTNET 10.9.0.2 L 0";
    let import = made(text);
    assert_eq!((import.lans, import.lines), (0, 1));
    let last = "[[tcpip.interface]]\nline = \"iucv0\"\n# cpu = 1\n\n\
                # line 2.\n[[tcpip.route]]\nto = \"0.0.0.0/0\"\nvia = \"10.9.0.2\"\n";
    assert!(import.text.ends_with(last), "{}", import.text);
}

#[test]
fn a_block_without_an_end_swallows_no_statements() {
    let text = format!("OBEY OPERATOR\n{LAN}\nAUTOLOG A\nAUTOLOG B\nENDAUTOLOG");
    assert_eq!(
        said(&made(&text).findings),
        [
            "P:1: OBEY has no end: must end with ENDOBEY",
            "P:1: OBEY is left out: the users of guests are a matter of users = [..] of [[guest]]",
            "P:3: AUTOLOG has no end: must end with ENDAUTOLOG",
            "P:3: AUTOLOG is left out: a host starts no programs: a supervisor like systemd does",
            "P:4: AUTOLOG is left out: a host starts no programs: a supervisor like systemd does",
        ]
    );
}

#[test]
fn nothing_of_a_profile_breaks_out_of_a_comment() {
    let source = Source::of("P\n[[guest]]\u{7f}", LAN);
    let import = import(&source, name("TCPIP")).unwrap();
    assert!(import.text.starts_with("# Made by siga import from P?[[guest]]?: docs"));
    let import = made(&format!("{LAN}\nDEVICE \u{1b}[31m\u{2028}é OSD 1"));
    assert!(!import.text.contains('\u{1b}'));
}

#[test]
fn what_there_is_too_much_of_is_bounded() {
    let import = made(&format!("{LAN}\n{}", "START X\n".repeat(FINDINGS_MAX + 7)));
    assert_eq!(import.findings.len(), FINDINGS_MAX + 1);
    let last = import.findings.last().unwrap().error.to_string();
    let right = "must have at most 1000: correct the mistakes first";
    assert_eq!(last, format!("P:1009: 7 further findings are not listed: {right}"));

    let import = made(&format!("{LAN}\n{}", "DEVICE\n".repeat(2 * FINDINGS_MAX)));
    let last = import.findings.last().unwrap().error.to_string();
    assert_eq!(last, format!("P:1002: the profile is not read from here on: {right}"));

    let starts = made(&format!("{LAN}\n{}", "START H\n".repeat(ENTRIES_MAX)));
    let error = "P:513: there are too many entries of this kind: must be at most 512";
    assert_eq!(said(&starts.findings), [error]);

    let routes: String = (0..=ROUTES_MAX)
        .map(|at| format!("10.{}.{}.0/24 10.1.0.1 L 0\n", 2 + at / 256, at % 256))
        .collect();
    let import = made(&format!("{LAN} GATEWAY\n{routes}"));
    assert_eq!(
        said(&import.findings)[ROUTES_MAX - machine::ROUTES_MAX],
        "P:1026: there are too many routes: must be at most 1024"
    );
    let error = "P:66: the route to 10.2.64.0/24 is left out: a machine has at most 64 routes";
    assert_eq!(said(&import.findings)[0], error);
    assert_eq!(import.text.matches("[[tcpip.route]]").count(), machine::ROUTES_MAX);

    let links = |device: &str, link: &str, bits: u8| -> String {
        let each = (0..300).map(|at| {
            let network = format!("10.{}.{}", at / 250, at % 250 + 1);
            format!("DEVICE D{at} {device} 1 LINK L{at} {link} D{at} START D{at} HOME {network}.1/{bits} L{at}\n")
        });
        format!("ASSORTEDPARMS NOFWD ENDASSORTEDPARMS\n{}", each.collect::<String>())
    };
    let import = made(&links("HIPERS", "QDIOIP", 24));
    assert_eq!((import.lans, import.lines), (machine::INTERFACES_MAX, 0));
    let error = "P:11: LINK L9 is left out: a machine has at most 9 interfaces";
    assert_eq!(said(&import.findings)[0], error);
    let import = made(&links("CTC", "CTC 0", 30));
    assert_eq!((import.lans, import.lines), (0, machine::INTERFACES_MAX));
    assert!(said(&import.findings).contains(&error.to_owned()));
}

#[test]
fn bytes_that_are_no_text_of_a_profile_are_refused_or_read_as_what_they_are() {
    // "DEVICE OSD 0800" in EBCDIC, with its blanks up to the 80th column.
    let mut card = b"\xc4\xc5\xe5\xc9\xc3\xc5\x40\xd6\xe2\xc4\x40\xf0\xf8\xf0\xf0".to_vec();
    card.resize(80, 0x40);
    let (what, right) = decode("P", &card).unwrap_err();
    assert_eq!(what, "is in EBCDIC");
    assert_eq!(right, "must be converted, like iconv -f IBM1047 -t UTF-8, or transferred as text");
    let (what, _) = decode("P", &vec![b' '; PROFILE_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(what, "has more than 262144 bytes");
    assert_eq!(decode("P", b"; Stra\xdfe").unwrap().text(), "; Stra\u{df}e");
    assert_eq!(decode("P", "; Straße".as_bytes()).unwrap().text(), "; Straße");
    assert_eq!(decode("P", b"").unwrap().text(), "");
    let error = read(Path::new("/nonexistent/P")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/P: cannot be read: "), "{error}");
    let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
    assert_eq!(error, "/dev/zero: cannot be read: it is no ordinary file");
}

#[test]
fn page_names_every_statement_and_no_other() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/import.md");
    let page = std::fs::read_to_string(page).unwrap();
    let tables = page.split("## Statements").nth(1).unwrap();
    let mut named: Vec<String> = Vec::new();
    for row in tables.lines().filter(|line| line.starts_with('|') && line.contains('`')) {
        let cells: Vec<&str> = row.split(" | ").collect();
        // The first cell of the first table, the second of the other.
        let cell = if cells[0].contains('`') { cells[0] } else { cells[1] };
        let quoted = cell.split('`').skip(1).step_by(2);
        named.extend(quoted.map(|text| text.split(' ').next().unwrap().to_owned()));
    }
    let known = statement::STATEMENTS.iter().map(|row| row.name.to_uppercase());
    let mut known: Vec<String> = known.collect();
    named.sort();
    known.sort();
    assert_eq!(named, known);
}
