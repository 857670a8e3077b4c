//! What a record looks like in MongoDB.

use catchment_model::{Envelope, Payload, RecordId, Symbol, UnixNs};
use catchment_pipeline::{Batch, SinkError};
use catchment_sinks::conformance::{NOON_MS, Shelf, plain, spool};
use mongodb::bson::{Bson, Decimal128, Document, RawDocumentBuf, doc};

use crate::cellar::{Cellar, Rack};

fn parse(payload: &str) -> Payload<'_> {
    Payload::parse(payload.as_bytes()).unwrap()
}

/// A batch of one record with this payload.
fn with_payload(seq: u64, payload: &str) -> Batch {
    Batch::of(spool(), seq, &[Envelope { payload: parse(payload), ..plain("okx", "trades", NOON_MS) }])
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

async fn stored(rack: &Rack, batch: &Batch) -> Document {
    rack.open().write(batch).await.unwrap();
    let record = batch.get(0).unwrap();
    let document = rack.document(record.id()).await.unwrap();
    assert_eq!(rack.line(record.id()).await.as_deref(), Some(record.line()), "byte for byte");
    RawDocumentBuf::try_into(document).unwrap()
}

#[tokio::test]
async fn a_record_has_s1s_keys_and_its_payload_can_be_queried() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("shown").await;
    let text = r#"{"p":"64250.10","q":0.010,"n":7,"big":12345678901234567890,"ok":true,"no":null,"b":[["1",2]],"":{}}"#;
    let envelope = Envelope {
        message_id: Some("m\"1"),
        sequence: Some(u64::MAX),
        symbol: Symbol::new("BTC\\é").unwrap(),
        payload: parse(text),
        ..plain("okx", "trades", NOON_MS)
    };
    let batch = Batch::of(spool(), 1, &[envelope]);
    let document = stored(&rack, &batch).await;
    let want = doc! {
        "_id": batch.get(0).unwrap().id().to_string(),
        "message_id": "m\"1",
        "sequence": decimal("18446744073709551615"),
        "exchange": "okx",
        "channel": "trades",
        "symbol": "BTC\\é",
        "server_time_ms": null,
        "received_at_ms": NOON_MS,
        "payload": {
            "p": "64250.10",
            "q": decimal("0.010"),
            "n": 7_i64,
            "big": decimal("12345678901234567890"),
            "ok": true,
            "no": null,
            "b": [["1", 2_i64]],
            "": {},
        },
        "received_at_ns": NOON_MS * 1_000_000,
        "source": "ingest",
    };
    assert_eq!(document, want);
    let query = doc! { "exchange": "okx", "payload.q": { "$lt": decimal("0.0101") }, "payload.b.0.1": 2 };
    assert_eq!(rack.collection.count_documents(query).await.unwrap(), 1);
}

#[tokio::test]
async fn what_bson_cannot_give_back_is_kept_as_text_beside_it() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("odd").await;
    let mut seq = 0;
    let mut check = async |payload: &str, value: Bson, has_text: bool| {
        seq += 1;
        let document = stored(&rack, &with_payload(seq, payload)).await;
        assert_eq!(document.get("payload"), Some(&value), "{payload}");
        let text = has_text.then(|| Bson::from(payload));
        assert_eq!(document.get("payload_text"), text.as_ref(), "{payload}");
    };
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let mut ninety_six = Bson::from(1_i64);
    for _ in 0..96 {
        ninety_six = Bson::from(vec![ninety_six]);
    }
    check("\"\\n\\u0001\\u0000\\\\ \u{7f}é\"", "\n\u{1}\0\\ \u{7f}é".into(), false).await;
    check(&nested(96), ninety_six, false).await;
    check(&nested(97), Bson::Null, true).await;
    check(r#"{"a":1, "b":2}"#, doc! { "a": 1_i64, "b": 2_i64 }.into(), true).await;
    check(r#""\u00e9\/\ud83c\udf0a""#, "é/🌊".into(), true).await;
    check(r#""\ud83d\u0041\ud83d""#, "\u{fffd}A\u{fffd}".into(), true).await;
    check(r#"[1.5e3]"#, vec![decimal("1.5E+3")].into(), true).await;
    let long = "0.12345678901234567890123456789012345";
    check(&format!("[{long}]"), vec![Bson::from(long)].into(), true).await;
    check(r#"{"a\u0000b":1}"#, Bson::Null, true).await;
}

#[tokio::test]
async fn keys_that_look_like_operators_are_only_keys() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("hostile").await;
    let payload = r#"{"$set":{"exchange":"x"},"a.b":1,"$where":"1","__proto__":{"$gt":""},"_id":5,"":""}"#;
    let envelope = Envelope {
        symbol: Symbol::new(r#"{"$gt":""}"#).unwrap(),
        payload: parse(payload),
        ..plain("okx", "trades", NOON_MS)
    };
    let document = stored(&rack, &Batch::of(spool(), 1, &[envelope])).await;
    assert_eq!(document.get_str("symbol").unwrap(), r#"{"$gt":""}"#);
    assert_eq!(document.get_str("exchange").unwrap(), "okx");
    let kept = document.get_document("payload").unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["$set", "a.b", "$where", "__proto__", "_id", ""]);
    // The same key twice: both are there.
    stored(&rack, &with_payload(2, r#"{"a":1,"a":2}"#)).await;
}

#[tokio::test]
async fn only_the_record_that_is_too_large_is_refused() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("large").await;
    let sink = rack.open();
    let small = plain("okx", "trades", NOON_MS);
    // As a document it would be seven times as large; as text it fits.
    let numbers = format!("[{}1]", "1,".repeat(5_000_000));
    let just = format!("\"{}\"", "x".repeat((16 << 20) - 400));
    // The longest line there is; its short numbers take eight bytes each in BSON.
    let old = Envelope { sequence: Some(1), received_at: UnixNs::from_ms(1).unwrap(), ..small };
    let line_len = |payload: &str| {
        let envelope = Envelope { payload: parse(payload), ..old };
        let mut line = Vec::new();
        envelope.write_line(&RecordId { spool: spool(), seq: 1 }, &mut line);
        line.len()
    };
    let too_large = format!("\"{}\"", "x".repeat((16 << 20) - line_len("\"\"")));
    assert_eq!(line_len(&too_large), 16 << 20);
    let numbers = Envelope { payload: parse(&numbers), ..small };
    let just = Envelope { payload: parse(&just), ..small };
    let too_large = Envelope { payload: parse(&too_large), ..old };
    let batch = Batch::of(spool(), 1, &[small, numbers, just, too_large, small]);
    let error = sink.write(&batch).await.unwrap_err();
    let SinkError::Refused { refused, .. } = error else { panic!("{error:?}") };
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].index, 3);
    assert!(refused[0].reason.contains("MongoDB takes at most 16777216"), "{}", refused[0].reason);
    let rest = batch.without(&[3]);
    sink.write(&rest).await.unwrap();
    assert_eq!(rack.seqs().await, [1, 2, 3, 5]);
    for record in rest.iter() {
        assert!(rack.line(record.id()).await.as_deref() == Some(record.line()));
    }
    sink.write(&rest).await.unwrap();
}
