//! HMAC-SHA256, as a client of the private socket signs. Whoever signs has a function of its own; that the two agree is
//! worth more than sharing one.

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// In lower-case hexadecimal.
pub(super) fn hmac_hex(secret: &[u8], message: &[u8]) -> String {
    let mut key = [0u8; BLOCK];
    match secret.len() > BLOCK {
        true => key[..32].copy_from_slice(&Sha256::digest(secret)),
        false => key[..secret.len()].copy_from_slice(secret),
    }
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    let outer = Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_own_examples_come_out() {
        // RFC 4231, cases 2 and 6.
        assert_eq!(
            hmac_hex(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hmac_hex(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
