// Synchronous sends of rocketmq-client-go's producer, measured: sync_sends NAME_SERVER.
//
// Speaks as src/bench/SyncSends.java does: each line of stdin, "TOPIC THREADS TOTAL BODY_BYTES", is a run of THREADS
// goroutines that send TOTAL / THREADS messages each, one after the other, and is answered with a line of key=value
// figures. A send that fails is counted, not sent again. Ends with stdin.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	routeLimit = 30 * time.Second
	routeWait  = 100 * time.Millisecond
)

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(nameServer string) error {
	rlog.SetLogLevel("fatal")
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameServer})),
		producer.WithGroupName("bench-client"),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	defer sender.Shutdown()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var topic string
		var threads, total, size int
		if _, err := fmt.Sscan(lines.Text(), &topic, &threads, &total, &size); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if err := awaitRoute(sender, topic, size); err != nil {
			return err
		}
		run(sender, topic, threads, total, size)
	}
	return nil
}

func sendOne(sender rocketmq.Producer, topic string, size int) error {
	message := primitive.NewMessage(topic, make([]byte, size)).WithTag("TagA")
	result, err := sender.SendSync(context.Background(), message)
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("send status %d", result.Status)
	}
	return err
}

// One message is sent before each run: it makes the topic, and waits for a broker that still registers.
func awaitRoute(sender rocketmq.Producer, topic string, size int) error {
	for limit := time.Now().Add(routeLimit); ; time.Sleep(routeWait) {
		if err := sendOne(sender, topic, size); err == nil || time.Now().After(limit) {
			return err
		}
	}
}

func run(sender rocketmq.Producer, topic string, threads, total, size int) {
	each := total / threads
	took := make([]int64, each*threads)
	var refused atomic.Int64
	var senders sync.WaitGroup
	begin := time.Now()
	for t := 0; t < threads; t++ {
		mine := took[t*each : (t+1)*each]
		senders.Add(1)
		go func() {
			defer senders.Done()
			for i := range mine {
				sent := time.Now()
				if sendOne(sender, topic, size) != nil {
					refused.Add(1)
				}
				mine[i] = time.Since(sent).Microseconds()
			}
		}()
	}
	senders.Wait()
	seconds := time.Since(begin).Seconds()
	slices.Sort(took)
	n := len(took)
	fmt.Printf("threads=%d total=%d msg_per_s=%.0f p50_us=%d p99_us=%d p999_us=%d max_us=%d not_success=%d\n",
		threads, n, float64(n)/seconds, took[n/2], took[n*99/100], took[n*999/1000], took[n-1], refused.Load())
}
