// Judges histories of bin/mqchaos --controller with porcupine, a checker of linearizability that
// knows nothing of this project: is there an order of all operations, each at a moment between its
// call and its return, in which every queue is an append-only log?
//
//	go run . history.jsonl ...
//
// The lines are described in tools/chaos/history.py. Exit codes: 0 every history is linearizable, 1
// one is not, 2 wrong usage or no such history, 3 not decided within the time (-timeout).
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Op     string   `json:"op"`
	Client int      `json:"client"`
	Queue  int      `json:"queue"`
	Call   int64    `json:"call"`
	Return *int64   `json:"return"`
	Value  string   `json:"value"`
	Offset *int     `json:"offset"`
	Values []string `json:"values"`
}

const (
	appends = "append"
	reads   = "read"
	finals  = "final"
)

// operation is what a client asked for and was told. Of an append without an answer offset is -1, and
// placed is where a read has seen its value, -1 where none has. That only keeps the search short: the
// final read sees the whole log, so what it has not seen can only come after it, or never.
type operation struct {
	op     string
	value  string
	values []string
	offset int
	placed int
}

// log is a queue: a list of values from its end. Immutable.
type log struct {
	value  string
	before *log
	length int
	hash   uint64
	// over: the final read has been.
	over bool
}

var empty = &log{hash: 14695981039346656037}

func (l *log) with(value string) *log {
	hash := l.hash
	for i := 0; i < len(value); i++ {
		hash = (hash ^ uint64(value[i])) * 1099511628211
	}
	return &log{value, l, l.length + 1, (hash ^ 0xff) * 1099511628211, l.over}
}

// holds says whether the values stand in the log from offset on.
func (l *log) holds(offset int, values []string) bool {
	at, end := l, offset+len(values)
	if at.length < end {
		return false
	}
	for at.length > end {
		at = at.before
	}
	for i := len(values) - 1; i >= 0; i-- {
		if at.value != values[i] {
			return false
		}
		at = at.before
	}
	return true
}

func step(state, input, _ interface{}) (bool, interface{}) {
	at, asked := state.(*log), input.(*operation)
	switch asked.op {
	case appends:
		is := at.length == asked.offset
		if asked.offset < 0 {
			is = at.length == asked.placed || asked.placed < 0 && at.over
		}
		if !is {
			return false, state
		}
		return true, at.with(asked.value)
	case finals:
		end := *at
		end.over = true
		return at.length == len(asked.values) && at.holds(0, asked.values), &end
	default:
		return at.holds(asked.offset, asked.values), state
	}
}

var model = porcupine.Model{
	Init:  func() interface{} { return empty },
	Step:  step,
	Equal: func(a, b interface{}) bool { return same(a.(*log), b.(*log)) },
	Hash:  func(state interface{}) uint64 { return state.(*log).hash },
}

func same(a, b *log) bool {
	return a.length == b.length && a.hash == b.hash && a.over == b.over
}

// load reads a history: the operations of each queue. Every queue has one final read.
func load(path string) (map[int][]line, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	queues, input := map[int][]line{}, bufio.NewScanner(file)
	input.Buffer(nil, 1<<30)
	for number := 1; input.Scan(); number++ {
		var read line
		if err := json.Unmarshal(input.Bytes(), &read); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if read.Op != appends && (read.Return == nil || read.Offset == nil) ||
			read.Op == appends && (read.Return == nil) != (read.Offset == nil) {
			return nil, fmt.Errorf("line %d: an answer has a return and an offset", number)
		}
		queues[read.Queue] = append(queues[read.Queue], read)
	}
	if err := input.Err(); err != nil {
		return nil, err
	}
	if len(queues) == 0 {
		return nil, errors.New("no operations")
	}
	return queues, nil
}

// operations turns the lines of a queue into what porcupine takes.
func operations(lines []line) ([]porcupine.Operation, error) {
	placed, ends := map[string]int{}, 0
	sent := map[string]bool{}
	for _, read := range lines {
		switch read.Op {
		case appends:
			if sent[read.Value] {
				return nil, fmt.Errorf("%s is appended twice: values are unique", read.Value)
			}
			sent[read.Value] = true
		case reads, finals:
			for i, value := range read.Values {
				placed[value] = *read.Offset + i
			}
			if read.Op == finals {
				ends++
			}
		default:
			return nil, fmt.Errorf("unknown operation %q", read.Op)
		}
	}
	if ends != 1 {
		return nil, fmt.Errorf("%d final reads, not one", ends)
	}
	var found []porcupine.Operation
	for _, read := range lines {
		asked := &operation{read.Op, read.Value, read.Values, -1, -1}
		returned := int64(math.MaxInt64)
		if read.Return != nil {
			asked.offset, returned = *read.Offset, *read.Return
		}
		if at, is := placed[read.Value]; is && read.Op == appends {
			asked.placed = at
		}
		found = append(found, porcupine.Operation{
			ClientId: read.Client, Input: asked, Call: read.Call, Return: returned,
		})
	}
	return found, nil
}

// stuck names an operation that could not be given a place.
func stuck(found []porcupine.Operation, info porcupine.LinearizationInfo) string {
	longest := map[int]bool{}
	for _, partial := range info.PartialLinearizations() {
		for _, each := range partial {
			if len(each) > len(longest) {
				longest = map[int]bool{}
				for _, id := range each {
					longest[id] = true
				}
			}
		}
	}
	order := make([]int, len(found))
	for i := range found {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return found[order[a]].Return < found[order[b]].Return })
	for _, id := range order {
		if !longest[id] {
			asked := found[id].Input.(*operation)
			return fmt.Sprintf("no place for %s by client %d of %s%v at offset %d (%d of %d "+
				"operations have one)", asked.op, found[id].ClientId, asked.value,
				first(asked.values), asked.offset, len(longest), len(found))
		}
	}
	return "no order"
}

func first(values []string) []string {
	if len(values) > 3 {
		return values[:3]
	}
	return values
}

func judge(path string, limit time.Duration) int {
	queues, err := load(path)
	if err != nil {
		fmt.Printf("%s: %v\n", path, err)
		return 2
	}
	code, count := 0, 0
	for queue, lines := range queues {
		found, err := operations(lines)
		if err != nil {
			fmt.Printf("%s: queue %d: %v\n", path, queue, err)
			return 2
		}
		count += len(found)
		result, info := porcupine.CheckOperationsVerbose(model, found, limit)
		switch result {
		case porcupine.Illegal:
			fmt.Printf("%s: queue %d is not linearizable: %s\n", path, queue, stuck(found, info))
			code = 1
		case porcupine.Unknown:
			fmt.Printf("%s: queue %d: not decided within %v\n", path, queue, limit)
			if code == 0 {
				code = 3
			}
		}
	}
	if code == 0 {
		fmt.Printf("%s: linearizable, %d queues, %d operations\n", path, len(queues), count)
	}
	return code
}

func main() {
	limit := flag.Duration("timeout", 2*time.Minute, "for each queue")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Println("linearizability: name the history.jsonl of one or more seeds")
		os.Exit(2)
	}
	worst := 0
	for _, path := range flag.Args() {
		code := judge(path, *limit)
		if worst == 0 || code == 1 {
			worst = code
		}
	}
	os.Exit(worst)
}
