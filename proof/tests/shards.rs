//! Connections move between the shards of a stack.

use std::process::Command;

#[test]
fn connections_move_between_threads_in_order() {
    let done = Command::new(env!("CARGO_BIN_EXE_siga-proof"))
        .args(["shards", "--moves", "2000", "--connections", "20", "--trials", "0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("\n0 segments out of order, 0 sent again, 0 resets"), "{said}");
}
