package results

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// eventMagic begins the events file. Its last byte is the version of the file's format.
const eventMagic = "lockbench-ev\x01"

const (
	frameSection  byte = 1 // JSON of a Section; the next frames belong to it
	frameAttempts byte = 2 // a block of attempts
	frameEnd      byte = 3 // the writer was closed, so the file is complete
)

// blockSize is the largest number of attempts in one frame. A killed run may leave its last frame
// incomplete, and then loses at most this many attempts.
const blockSize = 4096

// These constants limit, in bytes, how much memory a reader allocates for a frame, because a
// damaged file may give a wrong length for a frame.
const (
	maxFrame = 64 << 20
	maxBlock = blockSize * (1 + 7*binary.MaxVarintLen64) // for a block of attempts
)

// EventWriter writes the events file: the bytes of eventMagic and then frames. A frame has a kind
// (1 byte), the length of its payload (4 bytes, little endian), the CRC-32C of the payload (4
// bytes), and the payload, compressed with DEFLATE. The numbers of an attempt are varints. Times
// and tokens are differences from earlier values in the frame, so each frame can be read alone.
type EventWriter struct {
	w      io.Writer
	plain  []byte
	packed bytes.Buffer
	deflat *flate.Writer
}

// NewEventWriter writes the beginning of an events file to w. The returned writer adds sections.
func NewEventWriter(w io.Writer) (*EventWriter, error) {
	d, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is valid
	_, err := io.WriteString(w, eventMagic)
	return &EventWriter{w: w, deflat: d}, err
}

func (e *EventWriter) Write(s Section, attempts []Attempt) error {
	head, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := e.frame(frameSection, head); err != nil {
		return err
	}
	for len(attempts) > 0 {
		n := min(blockSize, len(attempts))
		e.plain = appendAttempts(e.plain[:0], attempts[:n])
		if err := e.frame(frameAttempts, e.plain); err != nil {
			return err
		}
		attempts = attempts[n:]
	}
	return nil
}

// Close writes the end frame. It does not close the underlying writer.
func (e *EventWriter) Close() error { return e.frame(frameEnd, nil) }

func (e *EventWriter) frame(kind byte, payload []byte) error {
	e.packed.Reset()
	e.packed.Write(make([]byte, 9))
	e.deflat.Reset(&e.packed)
	if _, err := e.deflat.Write(payload); err != nil {
		return err
	}
	if err := e.deflat.Close(); err != nil {
		return err
	}
	b := e.packed.Bytes()
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-9))
	binary.LittleEndian.PutUint32(b[5:], crc32.Checksum(b[9:], castagnoli))
	_, err := e.w.Write(b)
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendAttempts(b []byte, attempts []Attempt) []byte {
	var last Attempt
	for _, a := range attempts {
		b = append(b, byte(a.Outcome)|byte(a.End)<<4)
		b = binary.AppendUvarint(b, uint64(a.Client))
		b = binary.AppendUvarint(b, uint64(a.Name))
		b = binary.AppendVarint(b, a.Asked-last.Asked)
		b = binary.AppendVarint(b, a.Answered-a.Asked)
		if a.Outcome == Granted {
			b = binary.AppendVarint(b, int64(a.Token-last.Token))
			last.Token = a.Token
		}
		if a.End != EndOpen {
			b = binary.AppendVarint(b, a.Ended-a.Answered)
			b = binary.AppendVarint(b, a.Done-a.Ended)
		}
		last.Asked = a.Asked
	}
	return b
}

// ErrTruncated is the error for a file of records that was cut off or damaged. All records that
// were read from the file are complete.
var ErrTruncated = errors.New("events end early: the run was killed or the file cut")

// ScanEvents is like [ReadEvents], but reads the events file in the folder dir.
func ScanEvents(dir string, emit func(Section, []Attempt) error) error {
	f, err := os.Open(filepath.Join(dir, EventsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	return ReadEvents(f, emit)
}

// scanWhole is like ScanEvents, but for a finished run. If the events file ends early, its error
// also wraps [ErrIncomplete].
func scanWhole(dir string, emit func(Section, []Attempt) error) error {
	err := ScanEvents(dir, emit)
	if errors.Is(err, ErrTruncated) {
		return fmt.Errorf("%w: %s: %w", ErrIncomplete, dir, err)
	}
	return err
}

// ReadEvents calls emit for each section with its attempts, in the order of the file. It reuses the
// slice of attempts after emit has returned. If the file is cut off or damaged, ReadEvents emits
// the intact part and returns an error wrapping [ErrTruncated]. It stops at an error of emit.
func ReadEvents(r io.Reader, emit func(Section, []Attempt) error) error {
	magic := make([]byte, len(eventMagic))
	if _, err := io.ReadFull(r, magic); err != nil || !bytes.Equal(magic[:len(magic)-1], []byte(eventMagic[:len(eventMagic)-1])) {
		return fmt.Errorf("%w: the events file has no lockbench mark", ErrTruncated)
	}
	if v := magic[len(magic)-1]; v != eventMagic[len(eventMagic)-1] {
		return fmt.Errorf("%w: events are of version %d, this one reads version %d", ErrLater, v, eventMagic[len(eventMagic)-1])
	}
	var section *Section
	var attempts []Attempt
	flush := func() error {
		if section == nil {
			return nil
		}
		return emit(*section, attempts)
	}
	for {
		kind, payload, err := readFrame(r)
		if err == nil && kind == frameAttempts {
			attempts, err = parseAttempts(attempts, payload)
		}
		if err != nil {
			return errors.Join(flush(), fmt.Errorf("%w (%w)", ErrTruncated, err))
		}
		if kind == frameAttempts {
			continue
		}
		if err := flush(); err != nil || kind == frameEnd {
			return err
		}
		section, attempts = &Section{}, attempts[:0]
		if err := json.Unmarshal(payload, section); err != nil {
			return fmt.Errorf("%w (%w)", ErrTruncated, err)
		}
	}
}

func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	packed, err := io.ReadAll(io.LimitReader(r, int64(n))) // allocates for the actual data, not for the claimed length
	if err == nil && len(packed) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, nil, err
	}
	if crc32.Checksum(packed, castagnoli) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, nil, errors.New("a frame with a wrong checksum")
	}
	most := int64(maxFrame)
	if head[0] == frameAttempts {
		most = maxBlock
	}
	payload, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), most+1))
	if err == nil && int64(len(payload)) > most {
		err = fmt.Errorf("a frame with more than %d bytes in it", most)
	}
	return head[0], payload, err
}

func parseAttempts(to []Attempt, b []byte) ([]Attempt, error) {
	r := bytes.NewReader(b)
	var bad error
	uvarint := func() uint64 {
		v, err := binary.ReadUvarint(r)
		bad = cmp.Or(bad, err)
		return v
	}
	varint := func() int64 {
		v, err := binary.ReadVarint(r)
		bad = cmp.Or(bad, err)
		return v
	}
	var last Attempt
	for most := len(to) + blockSize; r.Len() > 0; {
		if len(to) == most {
			return to, fmt.Errorf("a block of more than %d attempts", blockSize)
		}
		kind, _ := r.ReadByte() // the block is not empty
		a := Attempt{Outcome: Outcome(kind & 15), End: End(kind >> 4)}
		a.Client, a.Name = int32(uvarint()), int32(uvarint())
		a.Asked = last.Asked + varint()
		a.Answered = a.Asked + varint()
		if a.Outcome == Granted {
			a.Token = last.Token + uint64(varint())
			last.Token = a.Token
		}
		if a.End != EndOpen {
			a.Ended = a.Answered + varint()
			a.Done = a.Ended + varint()
		}
		if bad != nil {
			return to, fmt.Errorf("a block ends within an attempt: %w", bad)
		}
		last.Asked = a.Asked
		to = append(to, a)
	}
	return to, nil
}
