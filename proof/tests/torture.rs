//! The torture, for a moment: the program runs for longer.

use std::process::Command;

#[test]
fn killed_control_units_hosts_and_writers_lose_nothing_that_was_acknowledged() {
    let kills = std::env::var("SIGA_KILLS").unwrap_or_else(|_| "12".into());
    let torture = Command::new(env!("CARGO_BIN_EXE_siga-proof"))
        .args(["torture", "--kills", "0", "--lan-kills", "0", "--disk-kills", &kills])
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
