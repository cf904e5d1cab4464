//! The torture, for a moment: the program runs for longer.

use std::process::Command;

#[test]
fn killed_control_units_hosts_and_writers_lose_nothing_that_was_acknowledged() {
    let kills = std::env::var("SIGA_KILLS").unwrap_or_else(|_| "12".into());
    let torture = Command::new(env!("CARGO_BIN_EXE_siga-proof"))
        .args(["torture", "--kills", "0", "--lan-kills", "0", "--tcp-kills", "0"])
        .args(["--machine-kills", "0", "--adapter-kills", "0", "--disk-kills", &kills])
        .output()
        .unwrap();
    let said = String::from_utf8(torture.stdout).unwrap();
    assert!(torture.status.success(), "{said}{}", String::from_utf8_lossy(&torture.stderr));
    // It has killed, and has compared something.
    let kills_line = said.lines().find(|line| line.starts_with("kills of disks ")).unwrap();
    let killed: u64 = kills_line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(killed >= kills.parse().unwrap(), "{said}");
    let compared = said.lines().find(|line| line.starts_with("writes acknowledged ")).unwrap();
    assert!(!compared.contains(" 0;"), "{said}");
    // It has said which writes it has tortured, and loudly if some were not.
    let errors = String::from_utf8_lossy(&torture.stderr);
    let is_all = said.contains("volumes written directly 2, by calls 0\n");
    assert!(is_all || said.contains("volumes written directly "), "{said}");
    assert_ne!(is_all, errors.contains("SKIPPED: torture of direct writes"), "{said}{errors}");
}

#[test]
fn killed_adapters_guests_and_hosts_end_nobody_elses_connection() {
    let torture = Command::new(env!("CARGO_BIN_EXE_siga-proof"))
        .args(["torture", "--kills", "0", "--lan-kills", "0", "--tcp-kills", "0"])
        .args(["--machine-kills", "0", "--disk-kills", "0", "--adapter-kills", "12"])
        .output()
        .unwrap();
    let said = String::from_utf8(torture.stdout).unwrap();
    let errors = String::from_utf8_lossy(&torture.stderr);
    assert!(torture.status.success(), "{said}{errors}");
    let of_wirings = said.lines().filter(|line| line.starts_with("kills of adapters with "));
    let count = |line: &str| line.split_whitespace().rev().nth(3)?.parse::<u64>().ok();
    let kills = of_wirings.filter_map(count);
    assert!(kills.sum::<u64>() >= 12, "{said}");
    assert!(!said.contains("byte for byte, 0;"), "{said}");
    // The cable is there, or it is said loudly that it is not.
    let has_cable = said.contains("kills of adapters with a wire of a cable");
    assert_ne!(has_cable, errors.contains("SKIPPED: torture of adapters with a cable"), "{said}");
    assert_eq!(has_cable, said.contains("the interface was as it was found"), "{said}");
}
