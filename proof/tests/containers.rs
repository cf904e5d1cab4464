//! A host and two guests in containers of their own: own PID, user, mount and network namespaces.

use std::io::Write;
use std::process::Command;

#[test]
fn host_and_guests_in_containers_beside_each_other_exchange_messages_frames_and_blocks() {
    let done = Command::new(env!("CARGO_BIN_EXE_siga-proof")).arg("containers").output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}{errors}");
    assert_eq!(said.lines().count(), 3, "{said}");
    for line in said.lines().filter(|line| !line.contains(": well: ")) {
        assert!(line.contains(": SKIPPED: "), "{line}");
        // Past the test harness, which hides what passes.
        std::io::stderr().write_all(format!("SKIPPED: containers: {line}\n").as_bytes()).unwrap();
        if let Some(file) = std::env::var_os("SIGA_SKIPPED") {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
            file.write_all(format!("containers: {line}\n").as_bytes()).unwrap();
        }
    }
}
